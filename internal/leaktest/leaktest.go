// Package leaktest fails a package whose goroutines outlive its tests.
//
// It is go.uber.org/goleak with more time: that one looks for half a second, which
// goroutines that are about to end may not get a processor for while the tests of
// other packages run.
package leaktest

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// waitLimit is how long goroutines have to end.
const waitLimit = time.Minute

// Main is what TestMain calls: it runs the tests, then looks for goroutines of
// theirs, and ends the process.
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

// Find returns an error that describes the goroutines other than the caller's that do not end.
func Find() error { return find(waitLimit) }

func find(waitLimit time.Duration) error {
	for deadline := time.Now().Add(waitLimit); ; {
		err := goleak.Find()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
