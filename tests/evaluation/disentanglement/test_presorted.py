"""Presorted trees are those of scikit-learn."""

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier

from isolatent.evaluation.disentanglement import presorted
from isolatent.evaluation.disentanglement.boosting import boost
from isolatent.evaluation.disentanglement.samples import as_split
from noisy_classes import noisy_classes


def test_trees_on_one_code_are_those_of_scikit_learn(monkeypatch):
    """With one code only rounding can decide between splits, which it does late if at all."""
    points = as_split(*noisy_classes(rows=450, codes=1), None, 0)
    for stages, tolerance in ((20, 1e-9), (100, 2e-3)):
        monkeypatch.setattr(presorted, "STAGES", stages)
        for f, fit in enumerate(boost(points, "presorted", 0, 1)):
            model = GradientBoostingClassifier(n_estimators=stages, random_state=0)
            model.fit(points.train.codes, points.train.classes[:, f])
            gain = sum(  # importances before normalisation
                tree.tree_.compute_feature_importances(normalize=False)[0] * len(points.train)
                for tree in model.estimators_.ravel()
            )
            assert fit.impurity_decrease.sum() == pytest.approx(gain, rel=tolerance)
            assert np.mean(fit.predicted == model.predict(points.test.codes)) > 1 - 10 * tolerance
