import prices
import pytest


@pytest.mark.parametrize("count", [0, 1, 4])
def test_the_price_grows(count):
    assert prices.price(count) == sum(range(count)) / 2


def test_a_price_is_of_something():
    with pytest.raises(ValueError, match="-1"):
        prices.price(-1)


def test_prices_come_one_by_one():
    assert list(prices.prices([2, 3])) == [0.5, 1.5]


def test_that_fails():
    assert prices.price(2) == 2
