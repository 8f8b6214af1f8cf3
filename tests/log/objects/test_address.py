"""URLs of buckets."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.errors import InvalidInput
from chronoline.log.objects.address import BucketAddress

ODD = r'\{^}%`]">[~<#|*?'
parts = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters=ODD + "/"),
    min_size=1,
    max_size=12,
).filter(lambda part: part not in (".", ".."))


def test_a_url_is_taken_apart() -> None:
    url = "s3://my.bucket-1/a%20b/c?region=eu-central-1&endpoint=http%3A%2F%2Fhost%3A9000"
    assert BucketAddress.parse(url) == BucketAddress(
        scheme="s3",
        bucket="my.bucket-1",
        prefix="a b/c",
        region="eu-central-1",
        endpoint="http://host:9000",
    )
    assert BucketAddress.parse("gs://bucket") == BucketAddress(scheme="gs", bucket="bucket")
    assert BucketAddress.parse("az://bucket/p/").prefix == "p"


@given(
    scheme=st.sampled_from(["s3", "gs", "az"]),
    prefix=st.lists(parts, max_size=4).map("/".join),
    endpoint=st.none() | st.just("http://host:9000") | st.just("https://h/a%20b"),
)
def test_written_url_is_read_back(scheme: str, prefix: str, endpoint: str | None) -> None:
    address = BucketAddress(scheme=scheme, bucket="bucket", prefix=prefix, endpoint=endpoint)
    assert BucketAddress.parse(address.url) == address
    assert re.fullmatch(r"[!-~]+", address.url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://", "not the name of a bucket"),
        ("s3:///prefix", "not the name of a bucket"),
        ("s3:bucket", "not the name of a bucket"),
        ("s3://ab", "not the name of a bucket"),
        ("s3://Bucket", "not the name of a bucket"),
        ("s3://bucket:9000/p", "not the name of a bucket"),
        ("http://bucket/p", "names no bucket"),
        ("s3://bucket/a//b", "empty part"),
        ("s3://bucket/a/../b", "only dots"),
        ("s3://bucket/a%2a", r"cannot have the character '\*'"),
        ("s3://bucket/a%0ab", "control character"),
        ("s3://bucket/a\nb", "control character"),
        ("s3://bucket/a#b", "# is written %23"),
        ("s3://bucket/%ff", "cannot be read"),
        ("s3://bucket?region", "cannot be read"),
        ("s3://[bucket", "cannot be read"),
        ("s3://bucket?region=a&region=b", "gives region twice"),
        ("s3://bucket?region=", "not a region"),
        ("s3://bucket?region=Frankfurt+am+Main", "not a region"),
        ("s3://bucket?endpoint=host:9000", "write http://host:port"),
        ("s3://bucket?endpoint=http://", "write http://host:port"),
        ("s3://bucket?endpoint=http://host?a=b", "write http://host:port"),
        ("s3://bucket?zone=a", "no option of s3:// is zone; known: region, endpoint"),
        ("gs://bucket?region=a", "no option of gs:// is region; known: endpoint"),
    ],
)
def test_invalid_url_is_refused_with_a_reason(url: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        BucketAddress.parse(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAKEY:hush@bucket/p",
        "s3://hush@bucket/p",
        "s3://bucket?secret_access_key=hush",
        "s3://bucket?access_key_id=hush&region=eu-central-1",
        "s3://bucket?aws_session_token=hush",
        "az://bucket?sas_token=hush",
        "gs://bucket?service_account_password=hush",
        "s3://bucket?endpoint=http://me:hush@host",
    ],
)
def test_credentials_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"credentials .* environment") as caught:
        BucketAddress.parse(url)
    assert "hush" not in str(caught.value)
