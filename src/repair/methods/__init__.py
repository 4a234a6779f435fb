"""Other methods than RePair: how each makes its samples, and how they enter a training batch."""
