"""How the samples of other methods than RePair enter a training batch, and with which losses."""
