"""E2FL in about 100 lines of plain PyTorch (Mozaffari and Houmansadr, arXiv 2205.10454).

The weights of the network are random and never change. Each client learns a score for every edge
and sends only the ranking of its scores. The server votes inside each group of clients, then among
the groups, where a group of two counts as much as one of sixteen. A model is a mask: the top half
of every layer's edges.

    python examples/e2fl_in_100_lines.py        # less than a minute; needs torch and scikit-learn
"""

import math

import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy, linear, relu

LAYERS = ((128, 64), (128, 128), (10, 128))  # outputs, inputs: a perceptron for 8 x 8 pixels
GROUPS = (16, 8, 4, 2)  # clients in each; group g sees the digits turned by g quarter turns
ROUNDS, CLIENTS_PER_ROUND, EPOCHS, BATCH = 40, 10, 2, 8
RATE, MOMENTUM, DECAY, KEEP = 0.1, 0.9, 1e-4, 0.5


def network(layers, x):
    """The logits of a perceptron without biases: only edges can be ranked."""
    *hidden, last = layers
    for weights in hidden:
        x = relu(linear(x, weights))
    return linear(x, last)


def rank(values):
    """The place of each edge when edges are sorted by value; ties go to the lower edge number."""
    return values.argsort(stable=True).argsort()


def mask(ranking):
    """The edges in the upper part of the ranking."""
    return ranking >= math.floor((1 - KEEP) * len(ranking) + 1e-9)


def subnetwork(weights, rankings):
    """The frozen weights of the edges that each layer's ranking keeps, zero elsewhere."""
    return [w * mask(r).view_as(w) for w, r in zip(weights, rankings, strict=True)]


def supernetwork(generator):
    """For each layer: weights of random sign, sorted initial scores, and a random ranking."""
    weights, scores, rankings = [], [], []
    for shape in LAYERS:
        signs = torch.randint(0, 2, shape, generator=generator) * 2 - 1
        draw = torch.rand(math.prod(shape), generator=generator)
        weights.append(signs * math.sqrt(2 / shape[1]))  # Kaiming's deviation
        scores.append(draw.sort().values / math.sqrt(shape[1]))
        rankings.append(rank(draw))
    return weights, scores, rankings


def train(weights, scores, rankings, batches):
    """Edge-popup, on a client: train scores from the server's ranking, and send their ranking."""
    scores = [start[ranking] for start, ranking in zip(scores, rankings, strict=True)]
    velocity = [torch.zeros_like(score) for score in scores]
    for x, y in batches:
        kept = subnetwork(weights, [rank(score) for score in scores])
        effective = [w.requires_grad_() for w in kept]
        gradients = torch.autograd.grad(cross_entropy(network(effective, x), y), effective)
        for layer, gradient in enumerate(gradients):
            # Straight through the mask: every edge gets the gradient as if it were kept.
            gradient = (gradient * weights[layer]).view(-1) + DECAY * scores[layer]
            velocity[layer] = MOMENTUM * velocity[layer] + gradient
            scores[layer] = scores[layer] - RATE * velocity[layer]
    return [rank(score) for score in scores]


def vote(ballots):
    """Borda count: edges by the sum of their ranks, layer by layer."""
    return [rank(torch.stack(layer).sum(dim=0)) for layer in zip(*ballots, strict=True)]


def federated_round(weights, scores, global_ranking, group_rankings, clients):
    """Return the global ranking and those of groups after a round; clients: (group, batches)."""
    ballots = {}
    for group, batches in clients:
        ballots.setdefault(group, []).append(train(weights, scores, global_ranking, batches))
    elected = {group: vote(rankings) for group, rankings in ballots.items()}  # one vote a client
    group_rankings = group_rankings | elected  # an absent group keeps its last ranking
    everyone = [group_rankings[group] for group in sorted(group_rankings)]
    return vote(everyone), group_rankings  # one vote a group


def digits(generator):
    """Training images of every client, and test images: digits that come with scikit-learn."""
    data = load_digits()
    images = (torch.tensor(data.images, dtype=torch.float32) - 4.88) / 6.02  # standardised
    labels = torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=generator)
    members = [group for group, size in enumerate(GROUPS) for _ in range(size)]
    rows = order[: 40 * len(members)].view(len(members), 40)
    pairs = zip(members, rows, strict=True)
    clients = [(g, images[own].rot90(g, (1, 2)).flatten(1), labels[own]) for g, own in pairs]
    rest = order[40 * len(members) :]
    return clients, images[rest], labels[rest]


def main():
    torch.set_num_threads(1)  # the tensors are small: more threads would only wait for each other
    generator = torch.Generator().manual_seed(0)
    clients, test_images, test_labels = digits(generator)
    weights, scores, global_ranking = supernetwork(generator)
    group_rankings = {}

    def accuracy(rankings, group):
        x = test_images.rot90(group, (1, 2)).flatten(1)
        predicted = network(subnetwork(weights, rankings), x).argmax(1)
        return 100 * (predicted == test_labels).float().mean().item()

    for number in range(1, ROUNDS + 1):
        drawn = []
        for client in torch.randperm(len(clients), generator=generator)[:CLIENTS_PER_ROUND]:
            group, x, y = clients[client]
            epochs = [torch.randperm(len(y), generator=generator) for _ in range(EPOCHS)]
            batches = [rows for epoch in epochs for rows in epoch.split(BATCH)]
            drawn.append((group, [(x[rows], y[rows]) for rows in batches]))
        global_ranking, group_rankings = federated_round(
            weights, scores, global_ranking, group_rankings, drawn
        )
        if number % 10 == 0:
            own = [accuracy(group_rankings.get(g, global_ranking), g) for g in range(len(GROUPS))]
            shared = [accuracy(global_ranking, g) for g in range(len(GROUPS))]
            groups = "   ".join(f"G{g + 1} {a:5.1f}" for g, a in enumerate(own))
            worst = f"worst group {min(own):5.1f} %   (global model: {min(shared):5.1f} %)"
            print(f"round {number:3}   {groups}   {worst}")


if __name__ == "__main__":
    main()
