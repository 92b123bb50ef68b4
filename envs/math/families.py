"""The families of generated problems: of each a table, whose rows `problems` explains."""

from __future__ import annotations

from .problems import read

FAMILIES = read(r"""
arithmetic
  1: a in 2..99; b in 2..99
     VALUE {a} + {b}
     a + b
  1: a in 2..99; b in 2..99
     VALUE {a} - {b}
     a - b
  1: a in 2..99; b in 2..12
     VALUE {a} * {b}
     a * b
  1: b in 2..9; a in 2..99 // b
     VALUE {a * b} / {b}
     a -> {a * b}//{b}
  2: a in 100..999; b in 11..999; sign in "-+"
     VALUE {a} {sign} {b}
     a + b if sign == "+" else a - b
  2: a in 100..999; b in 3..99
     VALUE {a} * {b}
     a * b
  2: a in 2..99; b in 2..99; c in 2..99; sign in "-+"
     VALUE {a} * {b} {sign} {c}
     a * b + c if sign == "+" else a * b - c
  2: a in 2..99; b in 2..99; c in 2..20; sign in "+-"
     VALUE ({a} {sign} {b}) * {c}
     (a + b) * c if sign == "+" else (a - b) * c
  3: expression, total, _ = tree(rng, 4, 40)
     VALUE {expression}
     total -> {expression.replace(' ', '')}
  4: expression, total, _ = tree(rng, 5, 60); base in 3..15
     VALUE {expression} + {base}^3
     total + base**3 -> {expression}+{base}**3
  5: top, x, wide = tree(rng, 3, 60); bottom, y, _ = tree(rng, 3, 30); bottom += "" if y else " + 7"
     VALUE {closed(top, wide)} / ({bottom})
     Fraction(x, y or 7) -> Fraction({top}, {bottom})
words
  1: who in PEOPLE; what in THINGS; a in 2..99; b in 2..99; verb in ("buys", "finds", "gets")
     {who} has {a} {what} and {verb} {b} more. How many {what} does {who} have now?
     a + b -> {a}+{b}
  1: who in PEOPLE; what in THINGS; b in 2..60; a in b + 1..b + 39; verb in ("sells", "loses", "gives away")
     {who} has {a} {what} and {verb} {b}. How many {what} are left?
     a - b -> {a}-{b}
  1: what in THINGS; box in BOXES; n in 2..40; k in 2..20
     There are {n} {box} of {k} {what}. How many {what} are there?
     n * k -> {n}*{k}
  1: what in THINGS; n in 2..9; a = n * rng.integer(2, 99 // n)
     {n} friends share {a} {what} equally. How many {what} does each get?
     a // n -> {a}//{n}
  2: who in PEOPLE; what in THINGS; a in 2..200; b in 2..99; c in 2..a + b
     {who} has {a} {what}, buys {b} more and gives away {c}. How many {what} are left?
     a + b - c -> {a}+{b}-{c}
  2: who in PEOPLE; what in THINGS; box in BOXES; n in 2..40; k in 2..20; b in 2..60
     {who} has {n} {box} of {k} {what} and {b} more. How many {what} does {who} have?
     n * k + b -> {n}*{k}+{b}
  2: who in PEOPLE; what in THINGS; box in BOXES; n in 2..40; k in 2..20; b in 1..n * k - 1
     {who} has {n} {box} of {k} {what} and sells {b} {what}. How many {what} are left?
     n * k - b -> {n}*{k}-{b}
  2: who in PEOPLE; what in THINGS; n in 2..9; k in 2..10; a in 100..300
     {who} has {a} dollars and buys {n} {what} at {k} dollars each. How many dollars are left?
     a - n * k -> {a}-{n}*{k}
  2: what in THINGS; n in 2..9; each in 4..40; a in 1..n * each - 1; b = n * each - a
     {n} friends put {a} and {b} {what} together and share them. How many does each get?
     each -> ({a}+{b})//{n}
  3: who in PEOPLE; what in THINGS; box in BOXES; n in 3..40; k in 3..30; cost in 2..9; kept in 1..n * k - 1
     {who} fills {n} {box} with {k} {what} each, keeps {kept} {what} and sells the others at {cost} dollars each.
     How many dollars does {who} earn?
     n * k * cost - kept * cost -> ({n}*{k}-{kept})*{cost}
  4: who in PEOPLE; n in 6..20; spent in 5..40; saved in 20..60;
     cost = 10 * rng.integer(5, 12); p = 10 * rng.integer(1, 5)
     {who} earns {spent + saved} dollars and spends {spent} dollars each week. After {n} weeks {who} buys a
     bike that costs {cost} dollars, with {p}% off. How many dollars does {who} have left?
     n * saved - cost // 10 * (10 - p // 10) -> {n}*({spent + saved}-{spent})-({cost}-{cost}*{p}//100)
  4: who, other = pair(rng); x in 4..40; gap in 2..30; later in 2..20; total = 2 * x + gap + 2 * later
     {other} is {gap} years older than {who}. In {later} years their ages will add up to {total}.
     How old will {who} be {later + 3} years from now?
     x + later + 3 -> ({total}-2*{later}-{gap})//2+{later + 3}
  5: who, other = pair(rng); a in 2..12; b in 2..12; c in 1..min(a, b) * 2
     {who} paints a wall in {a} hours and {other} paints it in {b} hours.
     They paint {c} such walls together. How many hours do they need?
     Fraction(a * b * c, a + b) -> {c}/(Fraction(1, {a})+Fraction(1, {b}))
fractions
  1: q in 2..12; n = q * rng.integer(2, 40)
     What is 1/{q} of {n}?
     n // q -> {n}//{q}
  1: q in 2..9; who in PEOPLE; what in THINGS; n = q * rng.integer(2, 20)
     {who} gives away 1/{q} of {n} {what}. How many {what} is that?
     n // q -> {n}//{q}
  1: q in SHORT; p = q * rng.integer(0, 99 // q - 1) + rng.integer(1, q - 1)
     What is {p}/{q} as a decimal? | How do you write {p}/{q} as a decimal?
     decimal(Fraction(p, q)) -> {p}/{q}
  2: q in 3..12; p in 2..q - 1; n = q * rng.integer(2, 40)
     What is {p}/{q} of {n}?
     n // q * p -> {n}*{p}//{q}
  2: q in 2..12; who in PEOPLE; what in THINGS; n = q * rng.integer(2, 30)
     {who} has {n} {what} and gives away 1/{q} of them. How many {what} are left?
     n // q * (q - 1) -> {n}-{n}//{q}
  2: q in SHORT; a in 1..60; b in 1..60; b += (a + b) % q == 0
     What is {a}/{q} + {b}/{q} as a decimal?
     decimal(Fraction(a + b, q)) -> ({a}+{b})/{q}
  3: a, b = ratio(rng, 15); c, d = ratio(rng, 15)
     VALUE {a}/{b} + {c}/{d}
     Fraction(a * d + b * c, b * d) -> Fraction({a}, {b}) + Fraction({c}, {d})
  4: a, b = ratio(rng, 15); c, d = ratio(rng, 15); e, f = ratio(rng, 20)
     VALUE {a}/{b} * {c}/{d} - {e}/{f}
     Fraction(a * c, b * d) - Fraction(e, f) -> Fraction({a * c}, {b * d}) - Fraction({e}, {f})
  5: a, b = ratio(rng, 15); c, d = ratio(rng, 15); e, f = ratio(rng, 20)
     VALUE ({a}/{b} + {c}/{d}) / ({e}/{f})
     Fraction((a * d + b * c) * f, b * d * e) -> (Fraction({a}, {b}) + Fraction({c}, {d})) / Fraction({e}, {f})
percent
  1: p in (5, 10, 20, 25, 30, 40, 50, 60, 75); n = 20 * rng.integer(1, 45);
     asks in ("What is", "How much is"); if n * p % 100 == 0
     {asks} {p}% of {n}?
     n // 20 * p // 5 -> {n}*{p}//100
  1: n in (20, 25, 50, 200, 400, 500); p in 1..100; if n * p % 100 == 0; k = n * p // 100
     What percent of {n} is {k}?
     p -> {k}*100//{n}
  2: p in (5, 10, 15, 20, 25, 30, 40, 50); n = 20 * rng.integer(1, 45);
     verb, sign in (("falls", "-"), ("rises", "+")); if n * p % 100 == 0
     A price of {n} dollars {verb} by {p}%. What is the new price in dollars?
     n * (100 + p if sign == "+" else 100 - p) // 100 -> {n}{sign}{n}*{p}//100
  2: who in PEOPLE; what in THINGS; p = 10 * rng.integer(1, 9); n = 10 * rng.integer(2, 60)
     {who} has {n} {what} and sells {p}% of them. How many {what} are left?
     n // 10 * (10 - p // 10) -> {n}-{n}*{p}//100
  3: n = 10 * rng.integer(5, 90); p in 2..40; q in 2..40
     A price of {n} dollars rises by {p}% and then falls by {q}%. What is the price in dollars at the end?
     decimal(n * Fraction(100 + p, 100) * Fraction(100 - q, 100)) -> {n}*(100+{p})*(100-{q})/10000
  4: p in 5..60; q in 5..60; old = 100 * rng.integer(1, 90);
     now = decimal(old // 100 * (100 - p) * Fraction(100 + q, 100))
     A price falls by {p}% and then rises by {q}%. Now it is {now} dollars. What was it in dollars at first?
     old -> Fraction("{now}")*10000/(100-{p})/(100+{q})
  5: n = 100 * rng.integer(1, 90); p in 2..12; years in 2..3
     An account holds {n} dollars and earns {p}% interest each year, paid into the account.
     How many dollars of interest has it earned after {years} years?
     decimal(n * (Fraction(100 + p, 100) ** years - 1)) -> {n}*((100+{p})**{years}-100**{years})/100**{years}
units
  1: big, small, size in UNITS; n in 2..99
     How many {small} are {n} {big}? | What is {n} {big} in {small}?
     n * size -> {n}*{size}
  1: big, small, size in UNITS; n in 2..99
     How many {big} are {n * size} {small}? | What is {n * size} {small} in {big}?
     n -> {n * size}//{size}
  2: big, small, size in UNITS; n in 2..60; k in 2..size - 1
     How many {small} are {n} {big} and {k} {small}?
     n * size + k -> {n}*{size}+{k}
  2: big, small, size in UNITS; n in 2..60; k in 2..size
     How many {small} remain of {n} {big} after {k} {small}?
     n * size - k -> {n}*{size}-{k}
  3: v = 4 * rng.integer(5, 30); t in 2..9
     A car drives {v * t} kilometers in {t} hours. How many kilometers does it drive in {t + 1} hours?
     v * (t + 1) -> {v * t}//{t}*{t + 1}
  3: d in 2..90; t in 5..200
     A train travels {d} kilometers in {t} minutes. What is its speed in kilometers per hour?
     Fraction(60 * d, t) -> Fraction({d})/Fraction({t}, 60)
  4: a in 11..99; b in 11..99; n in 2..12
     A floor is {a} decimeters long and {b} decimeters wide. Paint for a square meter costs {n} dollars.
     How many dollars does it cost to paint the floor?
     decimal(Fraction(a * b * n, 100)) -> {a}*{b}*{n}/100
  4: size = 10 * rng.integer(20, 90); fill in 20..60; drain in 2..19; t in 2..8; if fill * t < size
     A pump fills an empty tank of {size} liters at {fill} liters per minute. After {t} minutes a drain
     opens and lets out {drain} liters per minute. How many minutes after the start is the tank full?
     t + Fraction(size - fill * t, fill - drain) -> {t}+Fraction({size}-{fill}*{t}, {fill}-{drain})
  5: a in 10..200; b in 10..200; u in 20..120; v in 20..120
     A bus drives {a} kilometers at {u} kilometers per hour and then {b} kilometers at {v} kilometers per hour.
     What is its average speed in meters per second?
     Fraction((a + b) * u * v, a * v + b * u) * Fraction(5, 18) ->
     Fraction({a}+{b})/(Fraction({a}, {u})+Fraction({b}, {v}))*1000/3600
linear
  1: x in 1..60; b in 2..39
     SOLVE x + {b} = {x + b}
     x -> {x + b}-{b}
  1: x in 1..60; b in 2..39
     SOLVE x - {b} = {x - b}
     x -> {x - b}+{b}
  1: a in 2..9; x in 2..99 // a
     SOLVE {a}x = {a * x}
     x -> {a * x}//{a}
  2: a in 2..12; x in 1..30; b in 2..60; sign, back in ("-+", "+-"); c = a * x + b if sign == "+" else a * x - b
     SOLVE {a}x {sign} {b} = {c}
     x -> ({c}{back}{b})//{a}
  2: a in 2..12; y in 1..30; b in 2..60
     SOLVE x/{a} + {b} = {y + b}
     a * y -> ({y + b}-{b})*{a}
  2: a in 2..12; x in 1..30; b in 2..20; c = a * (x + b)
     SOLVE {a}(x + {b}) = {c}
     x -> {c}//{a}-{b}
  3: a in 2..20; c in ±12; x in ±30; b in ±60; if a != c; d = (a - c) * x + b
     SOLVE {side(a, b)} = {side(c, d)}
     x -> {f"({d} - {b})//({a} - {c})".replace("- -", "+ ")}
  4: a in 2..12; b in ±20; c in 2..12; d in ±20; e in ±40; if a != c
     SOLVE {a}(x{signed(b)}) = {c}(x{signed(d)}){signed(e)}
     Fraction(c * d + e - a * b, a - c) ->
     Fraction({f"{c}*{d}+{e}-{a}*{b}".replace("+-", "-").replace("--", "+")}, {a}-{c})
  5: a in 2..9; b in ±20; c in 2..9; d in ±20; e in ±12; if a != c;
     note = f"# multiply both sides by {a}*{c}: {c}(x{signed(b)}) = {a}(x{signed(d)}){signed(e * a * c)}"
     SOLVE (x{signed(b)})/{a} = (x{signed(d)})/{c}{signed(e)}
     (Fraction(d, c) + e - Fraction(b, a)) / (Fraction(1, a) - Fraction(1, c)) ->
     {note}\nprint(Fraction({a}*({d})+({e})*{a}*{c}-{c}*({b}), {c}-{a}))
systems
  1: x in 1..60; y in 1..39
     x + y = {x + y} and y = {y}. What is x?
     x -> {x + y}-{y}
  1: x in 1..60; y in 1..39
     x - y = {x - y} and y = {y}. What is x?
     x -> {x - y}+{y}
  1: a in 2..9; y in 2..60
     x = {a}y and y = {y}. What is x?
     a * y -> {a}*{y}
  2: p in 1..60; q in 1..60; x, y = max(p, q), min(p, q); name, sign in ("y-", "x+")
     x + y = {x + y} and x - y = {x - y}. What is {name}?
     x if name == "x" else y -> ({x + y}{sign}{x - y})//2
  2: a in 2..9; y in 2..60; s = a * y + y
     x = {a}y and x + y = {s}. What is y?
     y -> {s}//({a}+1)
  2: a in 2..12; x in 1..30; y in 1..30; s = a * x + y
     {a}x + y = {s} and y = {y}. What is x?
     x -> ({s}-{y})//{a}
  3: x = Fraction(rng.nonzero(20)); y = Fraction(rng.nonzero(20)); a, b, c, d, e, f = two_lines(rng, x, y)
     {a}x{signed(b, 'y')} = {c} and {d}x{signed(e, 'y')} = {f}. What is x?
     x -> Fraction({c}*({e})-({b})*({f}), {a}*({e})-({b})*{d})
  4: q in 2..4; x = Fraction(rng.nonzero(20), q); y = Fraction(rng.nonzero(20), q);
     a, b, c, d, e, f = two_lines(rng, x, y)
     {a}x{signed(b, 'y')} = {c} and {d}x{signed(e, 'y')} = {f}. What is x?
     x -> Fraction({c}*({e})-({b})*({f}), {a}*({e})-({b})*{d})
  5: three_planes
number-theory
  1: a in 10..99; b in 3..12
     What is the remainder of {a} divided by {b}? | What remains when {a} is divided by {b}?
     a % b -> {a}%{b}
  1: k in 2..15; n in 20..99
     How many multiples of {k} are there from 1 to {n}?
     len(range(k, n + 1, k)) -> {n}//{k}
  2: a in 11..99; b in 3..99
     What is the last digit of {a} * {b}?
     int(str(a * b)[-1]) -> {a}*{b}%10
  2: a in 10..99; b in 10..99; c in 3..15; sign, first, last in (("*", "", ""), ("+", "(", ")"))
     What is the remainder of {a} {sign} {b} divided by {c}?
     (a % c + b % c) % c if sign == "+" else (a % c) * (b % c) % c -> {first}{a}{sign}{b}{last}%{c}
  2: k in 3..30; n in 50..999
     What is the largest multiple of {k} up to {n}?
     n - n % k -> {n}//{k}*{k}
  3: k in 2..15; p in 2..30; q in 2..30; name, call in (("greatest", "gcd"), ("least", "lcm"))
     What is the {name} common {"divisor" if call == "gcd" else "multiple"} of {k * p} and {k * q}?
     k * (gcd(p, q) if call == "gcd" else lcm(p, q)) -> {call}({k * p}, {k * q})
  4: n = rng.integer(2, 20) * rng.integer(2, 20) * rng.integer(1, 6); found = divisors(n);
     m in 0..1;
     text = f"How many positive divisors does {n} have?" if m else f"What is the sum of all positive divisors of {n}?";
     program = f"sum({n}%d==0 for d in range(1,{n}+1))" if m else f"sum(d for d in range(1,{n}+1) if {n}%d==0)"
     {text}
     len(found) if m else sum(found) -> {program}
  4: a in 2..60; b in 10..400; m in 5..97
     What is the remainder of {a}^{b} divided by {m}?
     pow(a, b, m) -> {a}**{b}%{m}
  5: m in 5..30; n in 7..40; if gcd(m, n) == 1; r in 0..m - 1; s in 1..n - 1
     What is the smallest positive integer that leaves remainder {r} when divided by {m}
     and remainder {s} when divided by {n}?
     (r + m * ((s - r) * pow(m, -1, n) % n)) % (m * n) ->
     next(k for k in range(1,{m}*{n}+1) if k%{m}=={r} and k%{n}=={s})
sequences
  1: a in 10..99; d in 2..40; word, sign in (("less", "-"), ("more", "+"))
     Each term is {d} {word} than the one before. Which term follows {a}?
     a + d if sign == "+" else a - d -> {a}{sign}{d}
  1: a in 2..99; r in 2..9
     Each term is {r} times the one before. Which term follows {a}?
     a * r -> {a}*{r}
  2: a in 1..60; d in ±15; b = a + d; c = b + d; if c >= 0
     Which number comes next: {a}, {b}, {c}? | What is the next term of {a}, {b}, {c}?
     c + d -> {c}+{b}-{a}
  2: a in 1..40; r in 2..6; b = a * r; c = b * r
     Each term is {r} times the one before: {a}, {b}, {c}. What comes next?
     c * r -> {c}*{r}
  2: a in 1..60; d in 2..20; n in 5..60
     The first term is {a} and each term is {d} more than the one before. What is term {n}?
     range(a, a + n * d, d)[-1] -> {a}+({n}-1)*{d}
  3: a in 1..60; d in 2..20; n in 6..60
     A sequence starts at {a} and each term is {d} more than the one before. What is the sum of its first {n} terms?
     n * a + d * n * (n - 1) // 2 -> sum({a}+{d}*k for k in range({n}))
  4: a in 1..20; r in 2..4; b in ±20; n in 4..8; more = "plus" if b > 0 else "minus"
     A sequence starts at {a}. Each next term is {r} times the one before {more} {abs(b)}. What is term {n}?
     a * r ** (n - 1) + b * (r ** (n - 1) - 1) // (r - 1) ->
     x = {a}\nfor _ in range({n} - 1):\n    x = {r}*x{signed(b)}\nprint(x)
  5: x in 1..9; y in 1..9; p in 1..3; q in ±3; n in 6..12
     A sequence starts with {x} and {y}. Each later term is {p} times the one before it plus {q} times
     the one two before it. What is term {n}?
     term(x, y, p, q, n) -> x, y = {x}, {y}\nfor _ in range({n} - 2):\n    x, y = y, {p}*y + ({q})*x\nprint(y)
  5: a in 1..30; q in 2..6; n in 3..6; p in 1..q - 1
     The first term of a sequence is {a} and each next term is {p}/{q} of the one before.
     What is the sum of the first {n} terms?
     a * (1 - Fraction(p, q) ** n) / (1 - Fraction(p, q)) -> sum({a}*Fraction({p}, {q})**k for k in range({n}))
sums
  1: a in 1..20; b in 1..20
     VALUE {a} + {b}
     a + b
  2: a in 10..99; b in 10..99
     VALUE {a} + {b}
     a + b
  3: a in 10..99; b in 10..99; c in 10..99
     VALUE {a} + {b} + {c}
     a + b + c
  4: a in 100..999; b in 100..999
     VALUE {a} + {b}
     a + b
  5: a in 100..999; b in 100..999; c in 100..999
     VALUE {a} + {b} + {c}
     a + b + c
""")

SUMS = "sums"
"""A family that is in a set only where it is named. Its splits are parted by their numbers, whatever the wording."""
MIXED = tuple(name for name in FAMILIES if name != SUMS)
