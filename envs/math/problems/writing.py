"""How generated problems write terms and decimals."""

from fractions import Fraction


def signed_term(number: int, symbol: str = "") -> str:
    """Write a term that follows another one.

    Examples: `signed_term(3, "y")` is `" + 3y"`, `signed_term(-1, "y")` is `" - y"`,
    `signed_term(-1)` is `" - 1"`. Zero gives an empty text.
    """
    if number == 0:
        return ""
    sign = "-" if number < 0 else "+"
    if symbol and abs(number) == 1:
        return f" {sign} {symbol}"
    return f" {sign} {abs(number)}{symbol}"


def linear_expression(a: int, b: int) -> str:
    """Write ax + b, such as `"3x - 2"`, `"-x + 5"` or `"x"`."""
    if a == 1:
        return f"x{signed_term(b)}"
    if a == -1:
        return f"-x{signed_term(b)}"
    return f"{a}x{signed_term(b)}"


def write_decimal(value: Fraction) -> str:
    """Write a value whose decimal is finite, the way Python prints a quotient.

    Examples: 3/4 is `"0.75"`, 8/4 is `"2.0"`.
    """
    return repr(value.numerator / value.denominator)
