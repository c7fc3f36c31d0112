"""Hypergradient estimators of the related work behind one signature, one file per algorithm."""
