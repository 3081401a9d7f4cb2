"""A picture of the data, drawn from the same configuration: examples, sizes and labels of each group.

It is optional and bounded: data that is not there, or takes long, leaves the report without a picture and never without
a page.
"""

import base64
from threading import Thread

import numpy as np

from e2fl.config.experiment import Experiment
from e2fl.data.summary import DataFacts, look_at
from e2fl.data.svg import png
from e2fl.report.study import Json

SECONDS = 20.0
SAMPLES = 8  # images of each group
CLIENTS = 60  # that are looked at
GROUPS = 24  # whose images are shown
CLASSES = 40  # more labels than this make no picture


def picture(experiment: Experiment, seconds: float = SECONDS) -> Json:
    """Labels, images and sizes of each group; or the one key `missing`, which says why there are none."""
    found: list[Json] = []
    if experiment.imports():
        return {"missing": "reading a run never imports code that its configuration names"}

    def look() -> None:
        try:
            found.append(_drawn(look_at(experiment.build_data(), samples=SAMPLES, clients=CLIENTS)))
        # Data sets are anybody's code, and a report must not fail because one of them does.
        except Exception as error:
            found.append({"missing": f"{type(error).__name__}: {error}"})

    # Nobody can stop such code either, but nobody has to wait for it.
    looking = Thread(target=look, daemon=True)
    looking.start()
    looking.join(seconds)
    return found[0] if found else {"missing": f"the data took more than {seconds:.0f} s to load"}


def _drawn(facts: DataFacts) -> Json:
    images = {
        group: "data:image/png;base64," + base64.b64encode(png(np.hstack(samples))).decode()
        for group, samples in list(facts.samples.items())[:GROUPS]
        if samples
    }
    labels = {
        group: {str(label): count for label, count in enumerate(counts)}
        for group, counts in facts.label_mix.items()
        if facts.classes <= CLASSES
    }
    return {"images": images, "labels": labels, "sizes": dict(facts.clients_per_group), "looked": len(facts.shown)}
