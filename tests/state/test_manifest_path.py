"""How states name their manifests, and that no name escapes the log."""

import re

import pytest

from indextables.errors import ManifestCorruptedError
from indextables.log.paths import ManifestFile, parse_log_path
from indextables.state.state_manifest import manifest_key, new_manifest_path, normalized_manifest_path


def test_new_paths_are_shared_and_unique():
    paths = {new_manifest_path() for _ in range(100)}
    assert len(paths) == 100
    assert all(re.fullmatch(r"manifests/manifest-[0-9a-f]{8,}\.avro", path) for path in paths)
    assert all(isinstance(parse_log_path(manifest_key(path, 3)), ManifestFile) for path in paths)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("manifests/manifest-abc123.avro", "manifests/manifest-abc123.avro"),
        (
            "state-v00000000000000000042/manifest-abc123.avro",
            "state-v00000000000000000042/manifest-abc123.avro",
        ),
        ("manifest-abc123.avro", "state-v00000000000000000007/manifest-abc123.avro"),
    ],
)
def test_the_three_forms_of_a_path(path, expected):
    assert manifest_key(path, 7) == f"_transaction_log/{expected}"
    assert normalized_manifest_path(path, 7) == expected
    assert normalized_manifest_path(expected, 8) == expected


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "/etc/passwd",
        "/manifests/manifest-a.avro",
        "../manifests/manifest-a.avro",
        "manifests/../manifest-a.avro",
        "manifests/../../splits/manifest-a.avro",
        "manifests/./manifest-a.avro",
        "manifests//manifest-a.avro",
        "manifests/sub/manifest-a.avro",
        "manifests/%2e%2e/manifest-a.avro",
        "state-v42/manifest-a.avro",
        "state-v00000000000000000042/../manifest-a.avro",
        "s3://other/manifests/manifest-a.avro",
        "file:///manifests/manifest-a.avro",
        "splits/manifest-a.avro",
        "manifests\\manifest-a.avro",
        "manifests/manifest-a\x00.avro",
        "manifests/manifest-a\n.avro",
        "manifest-\\..\\a.avro",
        "_manifest.avro",
        "00000000000000000001.json",
        "manifests/manifest-a.json",
        "manifests/manifest-\ud800.avro",
    ],
)
def test_any_other_path_is_refused(path):
    with pytest.raises(ManifestCorruptedError, match="state of version 7"):
        manifest_key(path, 7)
