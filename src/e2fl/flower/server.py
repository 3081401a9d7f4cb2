"""The server app: an experiment, run on whatever nodes are there. It leaves the same folder of files as `e2fl run`."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from e2fl.algorithms import AnyAlgorithm
from e2fl.config.experiment import Experiment, load
from e2fl.errors import RunError
from e2fl.flower.federation import FlowerFederation
from e2fl.flower.run_config import Options, changes, from_run_config
from e2fl.models import Model
from e2fl.runs.folder import Folder
from e2fl.runs.progress import Progress
from e2fl.runs.runner import Run, Runtime, Watcher, run_experiment
from e2fl.runs.tables import comparison
from e2fl.simulation.simulator import SimulatedFederation
from e2fl.watching import finish


def server_app(experiment: str | Path) -> ServerApp:
    """The app that runs this experiment, a TOML file or the name of a shipped one."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        options = from_run_config(context.run_config)
        done = run_on(grid, load(str(experiment), changes(context.run_config)), options, watcher=Progress())
        if options.folder is None:
            print(comparison([done.summary]))
        else:
            finish([done], options.folder.resolve(), "flwr run")

    return app


def run_on(grid: Grid, experiment: Experiment, options: Options, *, watcher: Watcher | None = None) -> Run:
    """Run an experiment to its end on the nodes of a grid."""
    out = options.folder
    if out is not None and not options.resume and Folder(out).exists():
        raise RunError(
            f'{out} is there already; choose another with -c "out=\'...\'", or go on with it with -c "resume=true"'
        )
    data = experiment.build_data()

    def federate(algorithm: AnyAlgorithm, model: Model, folder: Folder | None) -> Runtime:
        return FlowerFederation(
            grid,
            algorithm,
            model.spec,
            options,
            known=data.population,
            fingerprint=experiment.fingerprint(),
            record=folder.checkpoints / "population.json" if folder is not None else None,
            at_home=lambda: SimulatedFederation(
                data, algorithm, experiment.build_learner(model), threads=experiment.threads
            ),
        )

    return run_experiment(experiment, out=out, resume=options.resume, data=data, watcher=watcher, federate=federate)
