"""Checks at the border between the runtime and an algorithm.

A mistake in the user's own algorithm ends in an error that names the method and says what it must
return.
"""

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from e2fl.algorithms.base import Algorithm, ClientModel, ClientModels, Description
from e2fl.data.federated import ClientId, Population
from e2fl.errors import ConfigError, with_article
from e2fl.errors import expect as expect
from e2fl.models import ModelSpec, defect_of_layers
from e2fl.participation import Ask
from e2fl.wire import Message


def _wrong(algorithm: object, method: str, what: str) -> ConfigError:
    return ConfigError(f"{type(algorithm).__name__}.{method} {what}")


def expect_message(
    value: Any, kind: type[Message], spec: ModelSpec, algorithm: object, method: str
) -> Message:
    """Return the message if it is of this type and can be sent, or raise an error."""
    message: Message = expect(value, kind, algorithm, method)
    if defect := message.defect(spec):
        raise _wrong(algorithm, method, f"returned {with_article(kind)} whose {defect}")
    return message


def expect_messages(
    value: Any,
    clients: Sequence[ClientId],
    kind: type[Message],
    spec: ModelSpec,
    algorithm: object,
    method: str,
) -> Mapping[ClientId, Message]:
    """Return the mapping if it holds exactly one message of this type for each client asked."""
    messages: Mapping[ClientId, Message] = expect(
        value,
        Mapping,  # type: ignore[type-abstract]
        algorithm,
        method,
    )
    missing = [client for client in clients if client not in messages]
    if missing or len(messages) != len(clients):
        which = missing or sorted(set(messages) - set(clients))
        what = f"returned {'nothing' if missing else 'a message'} for client {which[0]}"
        raise _wrong(algorithm, method, f"{what}; it must return one for each client asked")
    for message in {id(message): message for message in messages.values()}.values():
        expect_message(message, kind, spec, algorithm, method)
        if not message.finite():
            what = "returned weights that are not finite: training diverged"
            raise _wrong(algorithm, method, f"{what}; lower learner.learning_rate")
    return messages


def expect_models(value: Any, spec: ModelSpec, algorithm: object, method: str) -> ClientModels:
    """Return the models of a client if they can be evaluated, or raise an error."""
    models = expect(value, ClientModels, algorithm, method)
    if not isinstance(models.views, Mapping) or not models.views:
        raise _wrong(algorithm, method, "returned no views; it must return at least one")
    if models.group is not None and not isinstance(models.group, int | np.integer):
        raise _wrong(algorithm, method, f"returned the group {models.group!r}; it must be a number")
    for view, own in models.views.items():
        if not isinstance(own, ClientModel):
            what = f"returned {with_article(type(own))} as view '{view}'; it must be a ClientModel"
            raise _wrong(algorithm, method, what)
        for model in (own.model, *own.by_group.values()):
            if defect := _defect_of_model(model, spec):
                raise _wrong(algorithm, method, f"returned a view '{view}' whose model {defect}")
    return models


def expect_same_views(names: Mapping[ClientId, Sequence[str]], algorithm: object) -> None:
    """Raise an error unless all clients evaluate views of the same names."""
    first = next(iter(names), None)
    for client, views in names.items():
        if first is not None and views != names[first]:
            what = f"returned the views {', '.join(views)} for client {client}, and "
            what += f"{', '.join(names[first])} for client {first}; all must have the same"
            raise _wrong(algorithm, "model_for", what)


def expect_description(value: Any, spec: ModelSpec, algorithm: object) -> Description:
    """Return the description if files can hold it, or raise an error."""
    described = expect(value, Description, algorithm, "describe")
    if not callable(described.models):
        what = "returned models that cannot be called; write models=lambda: {...}"
        raise _wrong(algorithm, "describe", what)
    models = expect(described.models(), dict, algorithm, "describe(state).models")
    for name, model in models.items():
        if defect := _defect_of_model(model, spec):
            raise _wrong(algorithm, "describe", f"returned a model '{name}' that {defect}")
    try:
        json.dumps(dict(described.metadata), default=lambda number: number.item())
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        what = f"returned metadata that JSON cannot hold: {error}; use float(...) or a list"
        raise _wrong(algorithm, "describe", what) from None
    return described


def _defect_of_model(model: Any, spec: ModelSpec) -> str:
    """Return what is wrong with weights or a mask; empty if nothing is."""
    first = next(iter(model.values()), None) if isinstance(model, Mapping) else None
    mask = isinstance(first, np.ndarray)
    return defect_of_layers(model, spec.layers, np.ndarray if mask else torch.Tensor, flat=mask)


def require_known(ask: Ask, population: Population, spec: ModelSpec, algorithm: object) -> Ask:
    """Return the request if it asks clients of the population, each once, or raise an error."""
    if not isinstance(ask.clients, Sequence):
        what = f"asks {with_article(type(ask.clients))}; Ask.clients must be a sequence of clients"
        raise _wrong(algorithm, "ask", what)
    known = [layer.name for layer in spec.layers]
    for layer in ask.layers or ():
        if layer not in known:
            what = f"asks for layer '{layer}'; the model has {', '.join(known)}"
            raise _wrong(algorithm, "ask", what)
    seen: set[ClientId] = set()
    for client in ask.clients:
        if client not in population.declared:
            what = f"asks client {client!r}, which is not in the population; use population.ids"
            raise _wrong(algorithm, "ask", what)
        if client in seen:
            raise _wrong(algorithm, "ask", f"asks client {client} twice; once in a round is right")
        seen.add(client)
    return ask


def require_signatures(algorithm: object) -> None:
    """Raise an error if a method does not take the number of arguments it is called with."""
    for method, function in vars(Algorithm).items():
        if inspect.isfunction(function) and not method.startswith("_"):
            signature = inspect.signature(getattr(algorithm, method))
            count = len(inspect.signature(function).parameters) - 1
            try:
                signature.bind(*range(count))
            except TypeError:
                given = ", ".join(signature.parameters)
                what = f"must take {count} arguments besides self; see e2fl/algorithms/base.py"
                raise _wrong(algorithm, f"{method}({given})", what) from None
