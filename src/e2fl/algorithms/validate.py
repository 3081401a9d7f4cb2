"""Checks at the border between the runtime and an algorithm.

A mistake in the user's own algorithm ends in an error that names the method and says what it must
return. A reply that no honest client would send is rejected by name, and the run continues.
"""

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from e2fl.algorithms.base import ClientModel, ClientModels, Description
from e2fl.data.federated import ClientId, Population
from e2fl.errors import ConfigError, with_article
from e2fl.errors import expect as expect
from e2fl.models import ModelSpec, defect_of_layers
from e2fl.participation import Ask
from e2fl.wire import Message


def expect_message(
    value: Any, kind: type[Message], spec: ModelSpec, algorithm: object, method: str
) -> Message:
    """Return the message if it is of this type and its fields can be sent, or raise an error that
    names the method.
    """
    message: Message = expect(value, kind, algorithm, method)
    wrong = message.defect(spec)
    if wrong:
        raise ConfigError(
            f"{type(algorithm).__name__}.{method} returned {with_article(kind)} whose {wrong}"
        )
    return message


def expect_messages(
    value: Any,
    clients: Sequence[ClientId],
    kind: type[Message],
    spec: ModelSpec,
    algorithm: object,
    method: str,
) -> Mapping[ClientId, Message]:
    """Return the mapping if it holds one message of this type for each client asked, and nothing
    else.
    """
    name = f"{type(algorithm).__name__}.{method}"
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{name} returned {with_article(type(value))}; it must return a mapping from client to {kind.__name__}"
        )
    missing = [client for client in clients if client not in value]
    if missing or len(value) != len(clients):
        extra = sorted(set(value) - set(clients))
        which = (
            f"nothing for client {missing[0]}"
            if missing
            else f"a message for client {extra[0]}, which is not asked"
        )
        raise ConfigError(
            f"{name} returned {which}; it must return a message for each client asked, and no other"
        )
    for message in {id(message): message for message in value.values()}.values():
        if not isinstance(message, kind):
            raise ConfigError(
                f"{name} returned {with_article(type(message))} for a client; it must be {with_article(kind)}"
            )
        wrong = message.defect(spec)
        if wrong:
            raise ConfigError(
                f"{name} returned {with_article(kind)} whose {wrong}; see the state that start or aggregate returned"
            )
        if not message.finite():
            raise ConfigError(
                f"{name} returned weights that are not finite: training diverged; lower learner.learning_rate, or keep "
                "the old weights in aggregate when the new ones are not finite"
            )
    return value


def expect_models(value: Any, spec: ModelSpec, algorithm: object, method: str) -> ClientModels:
    """Return the models of a client if they can be evaluated, or raise an error that names the
    method.
    """
    models = expect(value, ClientModels, algorithm, method)
    name = f"{type(algorithm).__name__}.{method}"
    if not isinstance(models.views, Mapping) or not models.views:
        raise ConfigError(
            f"{name} returned no views; it must return ClientModels with at least one ClientModel"
        )
    if models.group is not None and not isinstance(models.group, int | np.integer):
        raise ConfigError(
            f"{name} returned the group {models.group!r}; a group is a number, or None"
        )
    for view, own in models.views.items():
        if not isinstance(own, ClientModel):
            raise ConfigError(
                f"{name} returned {with_article(type(own))} as view '{view}'; it must be a ClientModel, such as "
                "ClientModel(message.params)"
            )
        for model in (own.model, *own.by_group.values()):
            wrong = _defect_of_model(model, spec)
            if wrong:
                raise ConfigError(f"{name} returned a view '{view}' whose model {wrong}")
    return models


def expect_same_views(models: Mapping[ClientId, ClientModels], algorithm: object) -> None:
    """Raise an error unless all clients evaluate views of the same names."""
    first = next(iter(models), None)
    for client, own in models.items():
        if first is not None and list(own.views) != list(models[first].views):
            raise ConfigError(
                f"{type(algorithm).__name__}.model_for returned the views {', '.join(own.views)} for client {client}, "
                f"and {', '.join(models[first].views)} for client {first}; all clients must have the same"
            )


def expect_description(value: Any, spec: ModelSpec, algorithm: object) -> Description:
    """Return the description if files can hold it, or raise an error that names the method."""
    described = expect(value, Description, algorithm, "describe")
    name = f"{type(algorithm).__name__}.describe"
    if not callable(described.models):
        raise ConfigError(
            f"{name} returned models that cannot be called; write models=lambda: {{...}}"
        )
    for model, params in expect(
        described.models(), dict, algorithm, "describe(state).models"
    ).items():
        wrong = _defect_of_model(params, spec)
        if wrong:
            raise ConfigError(f"{name} returned a model '{model}' that {wrong}")
    try:
        json.dumps(dict(described.metadata), default=_plain)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{name} returned metadata that JSON cannot hold: {error}; use float(...) or a list"
        ) from None
    return described


def _plain(value: Any) -> Any:
    """Return a NumPy number as a Python number, or raise `TypeError` for other types."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(
        f"{with_article(type(value))} is not a number, a string, a list or a dictionary"
    )


def _defect_of_model(model: Any, spec: ModelSpec) -> str:
    """Return what is wrong with weights or a mask; empty if nothing is."""
    first = next(iter(model.values()), None) if isinstance(model, Mapping) else None
    mask = isinstance(first, np.ndarray)
    return defect_of_layers(model, spec.layers, np.ndarray if mask else torch.Tensor, flat=mask)


def require_known(ask: Ask, population: Population, spec: ModelSpec, algorithm: object) -> Ask:
    """Return the request if it asks clients of the population, each once, or raise an error that
    names the method.
    """
    name = f"{type(algorithm).__name__}.ask"
    if not isinstance(ask.clients, Sequence):
        raise ConfigError(
            f"{name} asks {with_article(type(ask.clients))}; Ask.clients must be a sequence of clients"
        )
    known = {layer.name for layer in spec.layers}
    for layer in ask.layers or ():
        if layer not in known:
            raise ConfigError(
                f"{name} asks for layer '{layer}'; the model has {', '.join(sorted(known))}"
            )
    seen: set[ClientId] = set()
    for client in ask.clients:
        if client not in population.declared:
            raise ConfigError(
                f"{name} asks client {client!r}, which is not in the population; use population.ids"
            )
        if client in seen:
            raise ConfigError(
                f"{name} asks client {client} twice; each client takes part once in a round"
            )
        seen.add(client)
    return ask


def require_signatures(algorithm: object, methods: Mapping[str, int]) -> None:
    """Raise an error if a method does not take the number of arguments it is called with."""
    for method, count in methods.items():
        function = getattr(algorithm, method)
        try:
            inspect.signature(function).bind(*range(count))
        except TypeError:
            given = ", ".join(inspect.signature(function).parameters)
            raise ConfigError(
                f"{type(algorithm).__name__}.{method}({given}) must take {count} arguments besides self; "
                "see Algorithm in e2fl/algorithms/base.py"
            ) from None
