"""Checks of what an algorithm returns to the runtime."""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from e2fl.algorithms.base import Algorithm, ClientModel, ClientModels, Description
from e2fl.data.federated import ClientId, Population
from e2fl.errors import ConfigError, expect, with_article
from e2fl.models import ModelSpec, defect_of_layers
from e2fl.participation import Ask
from e2fl.wire import Message


@dataclass(frozen=True)
class OutputChecks:
    """What an algorithm returns is checked here.

    A mistake in the user's own algorithm ends in an error that names the method and says what it
    must return.
    """

    algorithm: object
    spec: ModelSpec

    def wrong(self, method: str, what: str) -> ConfigError:
        """Return the error of a method."""
        return ConfigError(f"{type(self.algorithm).__name__}.{method} {what}")

    def signatures(self) -> None:
        """Raise an error if a method does not take the number of arguments it is called with."""
        for method, function in vars(Algorithm).items():
            if inspect.isfunction(function) and not method.startswith("_"):
                signature = inspect.signature(getattr(self.algorithm, method))
                count = len(inspect.signature(function).parameters) - 1
                try:
                    signature.bind(*range(count))
                except TypeError:
                    names = ", ".join(signature.parameters)
                    what = f"must take {count} arguments besides self; see e2fl/algorithms/base.py"
                    raise self.wrong(f"{method}({names})", what) from None

    def ask(self, value: Any, population: Population) -> Ask:
        """Return the request if it asks clients of the population, each once."""
        ask = expect(value, Ask, self.algorithm, "ask")
        if not isinstance(ask.clients, Sequence):
            kind = with_article(type(ask.clients))
            raise self.wrong("ask", f"asks {kind}; Ask.clients must be a sequence of clients")
        names = [layer.name for layer in self.spec.layers]
        for layer in ask.layers or ():
            if layer not in names:
                what = f"asks for layer '{layer}'; the model has {', '.join(names)}"
                raise self.wrong("ask", what)
        seen: set[ClientId] = set()
        for client in ask.clients:
            if client not in population.declared:
                what = f"asks client {client!r}, which is not in the population; use population.ids"
                raise self.wrong("ask", what)
            if client in seen:
                raise self.wrong("ask", f"asks client {client} twice; once in a round is right")
            seen.add(client)
        return ask

    def message(self, value: Any, kind: type[Message], method: str) -> Message:
        """Return the message if it is of this type and can be sent."""
        message = expect(value, kind, self.algorithm, method)
        if defect := message.defect(self.spec):
            raise self.wrong(method, f"returned {with_article(kind)} whose {defect}")
        return message

    def messages(
        self, value: Any, clients: Sequence[ClientId], kind: type[Message], method: str
    ) -> Mapping[ClientId, Message]:
        """Return the mapping if it holds exactly one message of this type for each client asked."""
        mapping: Any = Mapping
        messages: Mapping[ClientId, Any] = expect(value, mapping, self.algorithm, method)
        missing = [client for client in clients if client not in messages]
        if missing or len(messages) != len(clients):
            which = missing or sorted(set(messages) - set(clients))
            what = f"returned {'nothing' if missing else 'a message'} for client {which[0]}"
            raise self.wrong(method, f"{what}; it must return one for each client asked")
        for message in {id(message): message for message in messages.values()}.values():
            if not self.message(message, kind, method).finite():
                what = "returned weights that are not finite: training diverged"
                raise self.wrong(method, f"{what}; lower learner.learning_rate")
        return messages

    def models(self, value: Any, method: str) -> ClientModels:
        """Return the models of a client if they can be evaluated."""
        models = expect(value, ClientModels, self.algorithm, method)
        if not isinstance(models.views, Mapping) or not models.views:
            raise self.wrong(method, "returned no views; it must return at least one")
        if models.group is not None and not isinstance(models.group, int | np.integer):
            what = f"returned the group {models.group!r}; it must be a number"
            raise self.wrong(method, what)
        for view, client_model in models.views.items():
            if not isinstance(client_model, ClientModel):
                what = f"returned {with_article(type(client_model))} as view '{view}'"
                raise self.wrong(method, f"{what}; it must be a ClientModel")
            for model in (client_model.model, *client_model.by_group.values()):
                if defect := self._defect_of(model):
                    raise self.wrong(method, f"returned a view '{view}' whose model {defect}")
        return models

    def same_views(self, names: Mapping[ClientId, Sequence[str]]) -> None:
        """Raise an error unless all clients evaluate views of the same names."""
        first = next(iter(names), None)
        for client, views in names.items():
            if first is not None and views != names[first]:
                what = f"returned the views {', '.join(views)} for client {client}, and "
                what += f"{', '.join(names[first])} for client {first}; all must have the same"
                raise self.wrong("model_for", what)

    def description(self, value: Any) -> Description:
        """Return the description if files can hold it."""
        described = expect(value, Description, self.algorithm, "describe")
        if not callable(described.models):
            what = "returned models that cannot be called; write models=lambda: {...}"
            raise self.wrong("describe", what)
        models = expect(described.models(), dict, self.algorithm, "describe(state).models")
        for name, model in models.items():
            if defect := self._defect_of(model):
                raise self.wrong("describe", f"returned a model '{name}' that {defect}")
        try:
            json.dumps(dict(described.metadata), default=lambda number: number.item())
        except (TypeError, ValueError, AttributeError, RuntimeError) as error:
            what = f"returned metadata that JSON cannot hold: {error}; use float(...) or a list"
            raise self.wrong("describe", what) from None
        return described

    def _defect_of(self, model: Any) -> str:
        """Return the defect of weights or a mask; empty if there is none."""
        first = next(iter(model.values()), None) if isinstance(model, Mapping) else None
        mask = isinstance(first, np.ndarray)
        kind = np.ndarray if mask else torch.Tensor
        return defect_of_layers(model, self.spec.layers, kind, flat=mask)
