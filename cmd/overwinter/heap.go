package main

// heapReserve limits how often a program with a small heap collects garbage. The collector starts
// when the heap has doubled, so a worker with a heap of a few megabytes would collect several times
// a second while agents print, and use an eighth of its CPU time for that. The reserve counts as
// heap, but its pages are never touched: it uses no memory and allows the same amount of garbage.
// It hardly affects a program with a larger heap.
const heapReserve = 64 << 20

// reserveHeap returns the reserve, which must be kept alive while the program runs.
func reserveHeap() []byte { return make([]byte, heapReserve) }
