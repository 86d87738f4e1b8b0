"""The long race of appends on S3. The test server is single-threaded Python and needs minutes."""

import uuid

import pytest

from support.racing import race_of_appends


@pytest.mark.soak
def test_16_processes_of_50_appends_each_on_s3(s3_server):
    path = f"s3://{s3_server.make_bucket()}/{uuid.uuid4().hex}"
    race_of_appends(path, s3_server.storage_options, racers=16, commits=50)
