"""The two levels of a batch of tasks as linear algebra on points that stand for heads; no autograd anywhere.

A point is a head's entries, or its coefficients in the rows that span it (`bilevel.coordinates`). The rows are
those of support AND query, the latter without a loss of their own: ∇_w L_D lies in their span, hence so do
the adjoints of every estimator. With `operator` O (Gram matrix, or transposed rows) the logits of a point P are
P·O, and for any head direction D, with p the softmax at P, r = (p - target)/n and
s(D) = (diag(p) - p pᵀ)·(D·O)/n, row by row,

    ∇²_w L_S · D        = spread(s(D)) + ridge·D
    (∂²L_S/∂X∂w)ᵀ · D   = the features of the mixture  s(D)ᵀ·P + rᵀ·D,

where a mixture has a row per support image, written in the same coordinates as a head's rows. So sums over the
steps of an unrolled solve are taken of small mixtures, and the features enter once, at the end. The fit itself sees
no query: its steps are taken in the coordinates of the support rows alone (`fit`), which lie among the others.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from abomed.bilevel.coordinates import Coordinates, Dual, Primal, coordinates
from abomed.bilevel.estimators.base import Estimate, OracleCalls
from abomed.bilevel.head import Head, InitialHeads
from abomed.bilevel.hypergradient import FeatureGradient
from abomed.bilevel.objective import Examples, Objective, support_objective
from abomed.bilevel.steps import smoothness, theorem_momentum
from abomed.config.bilevel import InnerSettings

Point = Float[Tensor, "tasks ways coordinates"]
Mixture = Float[Tensor, "tasks support coordinates"]


@dataclass(frozen=True, eq=False)
class Linearised:
    """The support loss's second derivatives at one point."""

    problem: "LowerProblem"
    point: Point
    probabilities: Float[Tensor, "tasks ways support"]

    @property
    def residual(self) -> Float[Tensor, "tasks ways support"]:
        support = self.problem.support
        return (self.probabilities - support.targets.mT) / support.rows

    def response(self, direction: Point) -> Float[Tensor, "tasks ways support"]:
        """The change of the residuals along `direction`."""
        image = direction @ self.problem.support_operator
        centred = image - (self.probabilities * image).sum(1, keepdim=True)
        return self.probabilities * centred / self.problem.support.rows

    def hessian_product(self, direction: Point) -> Point:
        problem = self.problem
        return problem.spread_support(self.response(direction)) + problem.ridge * direction

    def cross_product(self, direction: Point) -> Mixture:
        """(∂²L_S/∂X∂w)ᵀ·direction."""
        return self.response(direction).mT @ self.point + self.residual.mT @ direction

    def slope(self) -> Mixture:
        """∂L_S/∂X."""
        return self.residual.mT @ self.point


@dataclass(frozen=True, eq=False)
class LowerProblem:
    """L_S and L_D of a batch of tasks in the coordinates of their heads."""

    support: Examples
    query: Examples
    ridge: float
    space: Coordinates
    fit: Coordinates  # of L_S alone
    operator: Float[Tensor, "tasks coordinates spanning"]
    dual: bool
    curvature: Float[Tensor, "tasks 1 1"]  # L_s, the ridge included

    @classmethod
    def of(
        cls, support: Examples, query: Examples, inner: InnerSettings, initial: Head | None
    ) -> "LowerProblem":
        space = coordinates(Objective((support, query), (1.0, 0.0), inner.ridge), initial, inner.form)
        if isinstance(space, Dual):
            operator, dual = space.gram, True
        elif isinstance(space, Primal):
            operator, dual = space.rows.mT, False
        else:
            raise TypeError(f"unknown coordinates: {type(space).__name__}")
        fit = coordinates(support_objective(support, inner.ridge), initial, "dual" if dual else "primal")
        curvature = smoothness(support)[:, None, None] + inner.ridge
        return cls(support, query, inner.ridge, space, fit, operator, dual, curvature)

    @property
    def support_operator(self) -> Float[Tensor, "tasks coordinates support"]:
        return self.operator[:, :, : self.support.rows]

    @property
    def query_operator(self) -> Float[Tensor, "tasks coordinates query"]:
        return self.operator[:, :, self.support.rows : self.support.rows + self.query.rows]

    def spread_support(self, by_row: Float[Tensor, "tasks ways support"]) -> Point:
        """The direction Σ_i by_row_i · (support row_i, 1)."""
        if not self.dual:
            return by_row @ self.support_operator.mT
        return pad(by_row, (0, self.operator.shape[1] - self.support.rows))

    def spread_query(self, by_row: Float[Tensor, "tasks ways query"]) -> Point:
        if not self.dual:
            return by_row @ self.query_operator.mT
        before, after = self.support.rows, self.operator.shape[1] - self.support.rows - self.query.rows
        return pad(by_row, (before, after))

    def inner(self, left: Tensor, right: Tensor) -> Float[Tensor, "tasks 1 1"]:
        """The inner product of two heads (or mixtures), the bias column included."""
        other = right @ self.operator if self.dual else right
        return (left * other).sum((1, 2), keepdim=True)

    def resolution(self, direction: Tensor) -> Float[Tensor, "tasks 1 1"]:
        """The squared norm below which that of `direction` is rounding.

        Coefficients of rows that depend on one another can be large and stand for nothing.
        """
        if not self.dual:
            return torch.zeros_like(self.curvature)
        largest = self.operator.diagonal(dim1=1, dim2=2).amax(1)[:, None, None]
        precision = 100 * torch.finfo(direction.dtype).eps
        return precision * largest * direction.square().sum((1, 2), keepdim=True)

    def linearise(self, point: Point) -> Linearised:
        return Linearised(self, point, (point @ self.support_operator).softmax(1))

    def query_residual(self, point: Point) -> Float[Tensor, "tasks ways query"]:
        return ((point @ self.query_operator).softmax(1) - self.query.targets.mT) / self.query.rows

    def momentum(self, accelerated: bool) -> Float[Tensor, "tasks 1 1"]:
        still = torch.zeros_like(self.curvature)
        return theorem_momentum(self.curvature / self.ridge) if accelerated else still

    def descend(self, steps: int, accelerated: bool, visited: list[Point] | None = None) -> Point:
        """The head after `steps` steps of length 1/L_s on the support loss.

        The points at which gradients were taken go to the end of `visited`, in coordinates of the fit.
        """
        step, reach = self.fit.stepper(1 / self.curvature), 1 + self.momentum(accelerated)
        w = v = self.fit.start
        for _ in range(steps):
            if visited is not None:
                visited.append(v)
            w_next = step(v)
            v = torch.lerp(w, w_next, reach)
            w = w_next
        return self.embed(w)

    def embed(self, point: Point) -> Point:
        """A point of the fit among all rows: none of it lies in the query rows."""
        if not self.dual:
            return point
        by_support, by_start = point[:, :, : self.support.rows], point[:, :, self.support.rows :]
        return torch.cat([pad(by_support, (0, self.query.rows)), by_start], dim=2)

    def gradient(self, point: Point) -> Point:
        """∇_w L_S."""
        return self.spread_support(self.linearise(point).residual) + self.ridge * point

    def mixed_features(self, mixture: Mixture) -> Float[Tensor, "tasks support dim"]:
        return self.space.head(mixture).weight

    def conclude(self, point: Point, mixture: Mixture | None, cost: OracleCalls) -> Estimate:
        """∇_X L_D at `point`, less the mixture that stands for the response of the head."""
        head = self.space.head(point)
        by_query = self.query_residual(point).mT @ head.weight
        by_support = torch.zeros_like(self.support.features)
        if mixture is not None:
            by_support = -self.mixed_features(mixture)
        return conclude(by_support, by_query, InitialHeads(head, head), cost)


def conclude(
    by_support: Float[Tensor, "tasks support dim"],
    by_query: Float[Tensor, "tasks query dim"],
    heads: InitialHeads,
    cost: OracleCalls,
) -> Estimate:
    """The mean over tasks, and which tasks were lost."""
    tasks = len(by_support)
    finite = all_finite(by_support) & all_finite(by_query)
    return Estimate(FeatureGradient(by_support / tasks, by_query / tasks), cost, heads, finite)


def all_finite(values: Float[Tensor, "tasks rows dim"]) -> Bool[Tensor, " tasks"]:
    return values.isfinite().all(2).all(1)
