package test

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// TestMain runs twice as many tests at once as the packages around it: these wait for timeouts of parts that are away for most of
// their time, and use a tenth of a processor each. -parallel 1 stays what it is.
func TestMain(m *testing.M) {
	flag.Parse()
	parallel := flag.Lookup("test.parallel")
	if n, err := strconv.Atoi(parallel.Value.String()); err == nil && n > 1 {
		if err := parallel.Value.Set(strconv.Itoa(2 * n)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
