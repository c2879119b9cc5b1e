// Package leaktest fails a package whose goroutines outlive its tests.
//
// It is go.uber.org/goleak with a longer timeout: goleak waits for half a second, in which ending
// goroutines may not get a CPU while the tests of other packages run.
package leaktest

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// waitLimit is how long goroutines may take to end.
const waitLimit = time.Minute

// Main implements TestMain: it runs the tests, checks for leaked goroutines, and ends the process.
func Main(m goleak.TestingM) {
	code := m.Run()
	if code == 0 {
		if err := Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines outlive the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Find returns an error that describes the goroutines, except the caller's, that do not end.
func Find() error { return find(waitLimit) }

func find(waitLimit time.Duration) error {
	for deadline := time.Now().Add(waitLimit); ; {
		err := goleak.Find()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
