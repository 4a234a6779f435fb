"""What holds for all tests: a property is a property however slow the machine is."""

import hypothesis

hypothesis.settings.register_profile("repair", deadline=None)
hypothesis.settings.load_profile("repair")
