"""Say which horizons of a score have decisions whose windows are not over yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from backtester.store.summary import rows_of


@dataclass(frozen=True, kw_only=True)
class PendingHorizon:
    """Hold what one horizon waits for.

    Attributes:
        horizon: Sessions from decision to exit.
        decisions: Scored decisions.
        pending: Of these, those whose window ends after the snapshot.
        earliest: First session at which one of them could be settled, or None where the calendar
            does not go so far.
        last: Last session of the books, which go to the snapshot's end where decisions at the
            score's own horizon are pending; None where that is not so.
    """

    horizon: int
    decisions: int
    pending: int
    earliest: date | None
    last: date | None


def pending_horizons(database: Path, run_id: str, score_id: str) -> tuple[PendingHorizon, ...]:
    """Return the horizons that have pending decisions, shortest first.

    Raises:
        DataError: There is no database, or it is damaged.
    """
    rows = rows_of(database, _PENDING, [run_id, score_id])
    return tuple(PendingHorizon(**row) for row in rows)


_PENDING: Final = """
WITH waiting AS (
    SELECT run_id, score_id, horizon, count(*) AS decisions,
        count(*) FILTER (status = 'pending') AS pending,
        min(exit_session) FILTER (status = 'pending') AS earliest
    FROM horizon_returns WHERE run_id = ? AND score_id = ?
    GROUP BY run_id, score_id, horizon
), ends AS (
    SELECT w.run_id, w.score_id, max(e.session) AS last
    FROM waiting w JOIN scores s USING (run_id, score_id) JOIN equity e USING (run_id, score_id)
    WHERE w.horizon = s.horizon AND w.pending > 0
    GROUP BY w.run_id, w.score_id
)
SELECT horizon, decisions, pending, earliest, last
FROM waiting LEFT JOIN ends USING (run_id, score_id)
WHERE pending > 0 ORDER BY horizon"""
