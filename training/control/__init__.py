"""What a method can control.

- `control`: one method as transformations of sampling and of the data of the loss
- `chain`: several methods as one
- `branching`: rules that fork paths
- `parameters`: parameters of methods, with their ranges
- `entropy_floor`: what a floor under the entropy of turns rests on
"""
