"""The server app: runs an experiment on connected nodes, and writes the folder of `e2fl run`."""

from functools import partial
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from e2fl.config.experiment import Experiment, load
from e2fl.flower.federation import FlowerFederation
from e2fl.flower.run_config import RunConfig, overrides
from e2fl.report.finish import finish, printed
from e2fl.report.from_runs import study_of
from e2fl.runs.progress import Progress
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import StoredRun
from e2fl.runs.watcher import Watcher


def server_app(experiment: str | Path) -> ServerApp:
    """Return the app that runs this experiment, a TOML file or the name of a shipped one."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = RunConfig.parse(context.run_config)
        stated = load(str(experiment), overrides(context.run_config))
        done = run_on(grid, stated, config, watcher=Progress())
        if config.folder is None:
            print(printed(study_of([done])))
        else:
            finish([done], config.folder.resolve(), "flwr run")

    return app


def run_on(
    grid: Grid, experiment: Experiment, config: RunConfig, *, watcher: Watcher | None = None
) -> StoredRun:
    """Run an experiment on the nodes of a grid, to its end."""
    data = experiment.build.data()
    return run_experiment(
        experiment,
        out=config.folder,
        resume=config.resume,
        data=data,
        watcher=watcher,
        federate=partial(FlowerFederation, grid, experiment, config, data),
    )
