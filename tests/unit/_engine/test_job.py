"""The one value that a worker is born with."""

from __future__ import annotations

import pickle

import pytest

from penstock._engine.job import Job


def job():
    return Job(0, [1, 2], True, list, False, 5, None, 2, None, "forked")


def test_a_job_cannot_be_changed():
    with pytest.raises(AttributeError):
        job().workers = 3


def test_a_job_pickles():
    assert pickle.loads(pickle.dumps(job())) == job()


def test_jobs_do_not_share_their_packed_lists():
    assert job().packed == {}
    assert job().packed is not job().packed
