"""The doctor's checks: rows over observations, by what they are about.

Invariant: pure and total: any observations give findings, and nothing that was not observed is judged.
"""

from dragoman.doctor.checks.answers import ANSWER_CHECKS
from dragoman.doctor.checks.behavior import BEHAVIOR_CHECKS
from dragoman.doctor.checks.card import CARD_CHECKS
from dragoman.doctor.checks.endpoint import ENDPOINT_CHECKS
from dragoman.doctor.checks.safety import SAFETY_CHECKS

CHECKS = (*CARD_CHECKS, *ENDPOINT_CHECKS, *ANSWER_CHECKS, *SAFETY_CHECKS, *BEHAVIOR_CHECKS)
"""All checks, in the order of the report."""
