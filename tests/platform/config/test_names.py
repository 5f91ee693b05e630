from ebclab.config.names import did_you_mean, nearest

NAMES = ["digits", "mnist", "fashion-mnist", "cifar10"]


def test_a_misspelt_name_finds_the_right_one():
    assert nearest("cifar-10", NAMES) == "cifar10"
    assert nearest("fashion_mnist", NAMES) == "fashion-mnist"


def test_letter_case_does_not_count():
    assert nearest("CIFAR10", NAMES) == "cifar10"


def test_the_name_returned_is_spelt_as_known():
    assert nearest("simclr", ["SimCLR"]) == "SimCLR"


def test_a_name_like_no_other_finds_nothing():
    assert nearest("imagenet22k", ["digits", "mnist"]) is None


def test_the_sentence_asks_and_lists():
    assert did_you_mean("minst", ["digits", "mnist"]) == "did you mean mnist? Known: digits, mnist"


def test_the_sentence_only_lists_when_nothing_is_close():
    assert did_you_mean("xyz", ["digits", "mnist"]) == "Known: digits, mnist"
    assert did_you_mean("xyz", []) == "Known: none"
