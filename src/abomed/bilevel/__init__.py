"""The bilevel problem of one batch of tasks: heads, losses, the inner solves, and the hypergradient."""
