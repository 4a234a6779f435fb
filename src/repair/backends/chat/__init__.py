"""Task backends over any OpenAI-compatible chat server: vLLM, SGLang, llama.cpp, Ollama, OpenAI."""

from repair.backends.chat.tasks import ChatInstructor, ChatPlanner, ChatTask, ChatTextEditor, ChatVerifier

__all__ = ["ChatInstructor", "ChatPlanner", "ChatTask", "ChatTextEditor", "ChatVerifier"]
