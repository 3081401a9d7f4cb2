"""Rankings of edges: order and mask, votes, ballots and their coder, messages."""
