"""The description says what is served."""

import re

import msgspec

from holdfast import Holdfast
from holdfast.http.examples import EXAMPLES
from holdfast.http.routes import ALL


async def test_it_describes_every_route_with_its_errors(here):
    document = (await here.get("/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    for table in ALL:
        for route in table:
            operation = document["paths"][route.path][route.method.lower()]
            assert operation["operationId"] == route.name
            assert operation["summary"], route.name
            codes = set(operation["responses"])
            assert {"400", "422", "500", "503"} <= codes
            assert route.scope == "public" or {"401", "403", "429"} <= codes
            for status in codes:
                if int(status) >= 400 and int(status) not in route.answers:
                    content = operation["responses"][status]["content"]
                    assert list(content) == ["application/problem+json"]


async def test_every_reference_leads_somewhere(here):
    text = (await here.get("/openapi.json")).text
    document = msgspec.json.decode(text)
    assert document["paths"]
    for name in set(re.findall(r'"\$ref":"#/components/schemas/([^"]+)"', text)):
        assert name in document["components"]["schemas"]


def test_the_examples_are_of_their_shapes():
    for kind, example in EXAMPLES.items():
        msgspec.convert(example, kind)


def test_it_can_be_made_without_a_store():
    document = Holdfast("sqlite://:memory:").asgi().openapi()
    assert document["paths"]["/v1/tasks"]["post"]["requestBody"]["content"]["application/json"]
