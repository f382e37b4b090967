"""Chat models behind one factory, every call recorded or replayed."""
