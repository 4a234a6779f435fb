"""The stage graph: wiring by name, resume, rounds. The only room that knows the order of the stages."""
