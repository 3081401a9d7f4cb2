"""Plain twins of compiled code, for reading, and what tests that both agree."""

from e2fl import kernels


def agree(twins, function, *arguments, words=""):
    """Return what a loop returns, which is what its twin returns, to the bit.

    None if both raise ValueError, the loop with these words.
    """
    results, said = [], words
    for module in (twins, kernels):
        try:
            results.append(getattr(module, function)(*arguments))
        except ValueError as error:
            results.append(None)
            said = str(error)
    assert bits_of(results[0]) == bits_of(results[1])
    assert words in said
    return results[1]


def bits_of(result):
    """Return the type, shape and bits of every array in a result."""
    if isinstance(result, tuple):
        return [bits_of(part) for part in result]
    return (result.dtype, result.shape, result.tobytes()) if hasattr(result, "dtype") else result
