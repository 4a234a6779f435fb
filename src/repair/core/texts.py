"""When two captions count as the same caption."""


def folded(text: str) -> str:
    """`text` without regard to case, runs of white space, and white space and full stops at the end.

    Example:
        >>> folded("A dog  on a Beach .")
        'a dog on a beach'
    """
    return " ".join(text.casefold().split()).rstrip(" .")
