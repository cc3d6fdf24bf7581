"""Settings come from files and the environment, checked, with the last word winning."""

from pathlib import Path

import pytest

from forewarn_base.settings import SettingInvalid, Settings
from forewarn_server.settings_loader import SettingsUnreadable, load_settings


def written(folder: Path, text: str) -> Path:
    """A settings file with this text."""
    path = folder / "forewarn.toml"
    path.write_text(text)
    return path


def test_settings_come_from_a_file(tmp_path: Path) -> None:
    """What a file says replaces the default, and only that."""
    settings = load_settings([written(tmp_path, '[listen]\nmetadata = ["127.0.0.1:1"]')], {})
    assert settings.listen.metadata == ("127.0.0.1:1",)
    assert settings.listen.operator == "127.0.0.1:8470"


def test_fragments_win_over_their_file(tmp_path: Path) -> None:
    """Drop-ins beside a file are read after it, in the order of their names."""
    path = written(tmp_path, "[listen]\nworkers = 1")
    folder = tmp_path / "forewarn.toml.d"
    folder.mkdir()
    (folder / "20-more.toml").write_text("[listen]\nworkers = 3")
    (folder / "10-some.toml").write_text("[listen]\nworkers = 2")
    assert load_settings([path], {}).listen.workers == 3


@pytest.mark.parametrize(
    ("variable", "text", "section", "name", "value"),
    [
        pytest.param("FOREWARN_STORE_URL", "x.db", "store", "url", "x.db", id="text"),
        pytest.param("FOREWARN_LISTEN_WORKERS", "2", "listen", "workers", 2, id="whole-number"),
        pytest.param(
            "FOREWARN_METADATA_RATE_PER_S", "2", "metadata", "rate_per_s", 2.0, id="number"
        ),
        pytest.param("FOREWARN_METADATA_PREVIEW", "yes", "metadata", "preview", True, id="truth"),
        pytest.param("FOREWARN_FEED_HOSTS", "a=1 b=2", "feed", "hosts", ("a=1", "b=2"), id="list"),
    ],
)
def test_the_environment_has_the_last_word(
    tmp_path: Path, variable: str, text: str, section: str, name: str, value: object
) -> None:
    """A variable sets its setting, read as the kind the setting is."""
    settings = load_settings([written(tmp_path, "")], {variable: text})
    assert getattr(getattr(settings, section), name) == value


def test_misspelt_variable_is_refused_and_a_strange_one_is_not() -> None:
    """What is near a section was meant for it; other programs have variables like ours."""
    with pytest.raises(SettingInvalid, match="perhaps FOREWARN_METADATA_"):
        load_settings((), {"FOREWARN_METDATA_RATE_BURST": "3"})
    others = ("SERVICE_HOST", "PORT_8470_TCP", "EVENT_ID", "SERVER", "TOKEN", "ENDPOINT")
    assert load_settings((), {f"FOREWARN_{name}": "x" for name in others}) == Settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("[listen]\nmetdata = []", "perhaps metadata", id="misspelt-name"),
        pytest.param("[store_]\nurl = 'x'", "perhaps store", id="misspelt-section"),
        pytest.param("url = 'x'", "outside a", id="no-section"),
        pytest.param("[listen]\nworkers = '2'", "must be an integer", id="text-for-number"),
        pytest.param("[listen]\nworkers = true", "must be an integer", id="truth-for-number"),
        pytest.param("[listen]\nmetadata = [1]", "must be a string", id="number-in-list"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    """The error names the setting, the file and the kind that is wanted."""
    path = written(tmp_path, text)
    with pytest.raises(SettingInvalid, match=said) as refused:
        load_settings([path], {})
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "[metadata]\nproxy_secret = ['hidden']",
        "[node]\ntoken = {a = 'hidden'}",
        "[azure]\ntoken_key = ['hidden']",
        "[store]\nurl = ['hidden']",
        "[otlp]\nendpoint = ['https://collector/hidden']",
    ],
)
def test_a_wrong_setting_that_may_be_a_secret_is_not_shown(tmp_path: Path, text: str) -> None:
    """Start-up errors stand in logs."""
    with pytest.raises(SettingInvalid, match="must be a") as refused:
        load_settings([written(tmp_path, text)], {})
    assert "hidden" not in str(refused.value)


def test_a_wrong_variable_is_refused() -> None:
    """A number that is none is refused from the environment as well."""
    with pytest.raises(SettingInvalid, match="must be an integer"):
        load_settings([], {"FOREWARN_LISTEN_WORKERS": "two"})


@pytest.mark.parametrize("text", [pytest.param("[", id="no-toml"), pytest.param(None, id="absent")])
def test_an_unreadable_file_is_refused(tmp_path: Path, text: str | None) -> None:
    """A file that is not there or no TOML is an error with its path."""
    path = tmp_path / "forewarn.toml" if text is None else written(tmp_path, text)
    with pytest.raises(SettingsUnreadable, match=r"forewarn\.toml"):
        load_settings([path], {})
