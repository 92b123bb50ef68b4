"""Parts of the area `methods`: a toy policy, what all methods promise on it, their sheets' examples, and branching."""
