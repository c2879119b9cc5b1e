package main

// heapReserve bounds how often a program with little in memory collects garbage. The collector starts when the heap has doubled, so that
// a worker with a heap of some megabytes collects several times a second while agents speak, and uses an eighth of its CPU time for
// it. The reserve counts as heap, but no page of it is ever touched: it takes no memory, and lets as much garbage gather. A program with a
// larger heap collects nearly as often as without it.
const heapReserve = 64 << 20

// reserveHeap returns what has to be kept alive for as long as the program runs.
func reserveHeap() []byte { return make([]byte, heapReserve) }
