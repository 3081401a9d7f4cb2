"""`e2fl predict`: predictions for the rows of a table."""

import argparse
from pathlib import Path

from e2fl.commands.arguments import Commands, add_group


def add_parser(commands: Commands) -> None:
    predict = commands.add_parser(
        "predict",
        help="predict the rows of a table with a finished run",
        description="Predict the rows of a table, or of an array of inputs, with the model of a finished run.",
    )
    predict.add_argument("run", type=Path, metavar="RUN", help="the folder of a finished run")
    predict.add_argument("table", type=Path, metavar="DATA", help="a CSV or Parquet file, or inputs in an .npy file")
    choice = predict.add_mutually_exclusive_group()
    add_group(choice)
    choice.add_argument("--find-group", action="store_true", help="let the algorithm find the group of these rows")
    predict.add_argument("--out", type=Path, metavar="FILE", help="a CSV file; default: print the predictions")
    predict.set_defaults(act=_predict)


def _predict(options: argparse.Namespace) -> int:
    from e2fl.files import write_text
    from e2fl.runs.predict import predict_file

    found = predict_file(options.run, options.table, group=options.group, find_group=options.find_group)
    if options.out is None:
        print(found.to_csv(), end="")
        return 0
    write_text(options.out, found.to_csv())
    used = f" with the model {found.model}" if found.model else ""
    print(f"predicted {len(found.classes):,} rows{used}; written to {options.out}")
    return 0
