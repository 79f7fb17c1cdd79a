"""Admission policies in CEL: ValidatingAdmissionPolicy and MutatingAdmissionPolicy.

`PolicyAdmission` (`policy_admission.py`, START HERE) runs the stored policies on a request. `policy_index.py`
compiles each version of a policy once; `matching.py` selects those that match a request; `evaluation.py`
evaluates their expressions; `validating.py` and `mutating.py` act on the results.
"""
