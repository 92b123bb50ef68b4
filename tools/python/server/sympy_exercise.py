"""Uses sympy as programs do, before the first program does.

The first use of a function of sympy fills caches, and the next few let Python's interpreter adapt
the bytecode. Both survive in the forks of the process.
"""


def exercise_sympy() -> None:
    """Solve, transform and print typical expressions, so that later uses of sympy are faster.

    The results are dropped. Call this only if sympy is imported already, since the import takes
    most of a second.
    """
    import sympy as sp

    x, y, n = sp.symbols("x y n")

    equations = (
        x**2 - 5 * x + 6,
        x**3 - 6 * x**2 + 11 * x - 6,
        sp.sqrt(x + 1) - 2,
        sp.Eq(x / 3 + sp.Rational(1, 2), 2),
    )
    for equation in equations:
        str(sp.solve(equation, x))
    # Several of the same form, after which the bytecode is adapted.
    roots_of_quadratics = ((1, 4), (5, 2), (-1, 3), (7, -2), (3, 8), (1, 9), (4, -5), (2, 3))
    for root, other_root in roots_of_quadratics:
        str(sp.solve(x**2 - (root + other_root) * x + root * other_root, x))
    str(sp.solve([x + y - 3, 2 * x - y], [x, y]))

    expression = (x + 1) ** 3 * sp.sin(x) / (x**2 - 1) + sp.exp(-x) * sp.log(x + 2)
    for transform in (sp.expand, sp.factor, sp.simplify, sp.together):
        transform(expression)
    sp.diff(expression, x)
    expression.subs(x, 2).evalf()
    sp.latex(expression)
    str(expression)

    results = (
        sp.integrate(x**2 * sp.exp(x), x),
        sp.integrate(sp.sin(x), (x, 0, sp.pi)),
        sp.limit(sp.sin(x) / x, x, 0),
        sp.series(sp.cos(x), x, 0, 4),
    )
    for result in results:
        str(result)
    str(sp.summation(n**2, (n, 1, 10)))
    str(sp.Matrix([[1, 2], [3, 4]]).inv())
    str(sp.Matrix([[2, 1], [1, 2]]).eigenvals())
    str(sp.nsimplify(0.75))
    str(sp.sqrt(8))
    str(sp.Rational(3, 4) + sp.Rational(1, 6))
    str(sp.N(sp.pi, 20))
    str(sp.simplify(sp.sin(x) ** 2 + sp.cos(x) ** 2))

    sp.factorint(360)
    sp.isprime(97)
    sp.gcd(48, 36)
    sp.binomial(10, 3)
    sp.factorial(10)
    sp.divisors(28)
    sp.prime(10)
    sp.sympify("x**2 + 1")
