// Vulncheck runs govulncheck on the modules of this repository. If it cannot reach the database of
// vulnerabilities, it reports that instead of an empty result.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The exit codes.
const (
	exitClean      = 0
	exitVulnerable = 1
	// exitUnchecked is EX_TEMPFAIL of sysexits.h: a retry may succeed.
	exitUnchecked = 75
)

// reachTimeout bounds the check whether the database is reachable.
const reachTimeout = 15 * time.Second

func main() {
	database := flag.String("db", "https://vuln.go.dev", "address of the database")
	lenient := flag.Bool("lenient", false, "exit with 0 if the database cannot be reached")
	flag.Parse()
	code := check(context.Background(), *database, flag.Args(), os.Stdout)
	if code == exitUnchecked && *lenient {
		code = exitClean
	}
	os.Exit(code)
}

// check runs govulncheck on the packages of each module.
func check(ctx context.Context, database string, modules []string, out io.Writer) int {
	if err := reach(ctx, database); err != nil {
		fmt.Fprintf(out, "vulnerabilities: NOT CHECKED: the database %s is unreachable: %v\n", database, err)
		return exitUnchecked
	}
	tools, err := filepath.Abs("tools/tools.mod")
	if err != nil {
		fmt.Fprintln(out, err)
		return exitVulnerable
	}
	code := exitClean
	for _, module := range modules {
		cmd := exec.CommandContext(ctx, "go", "tool", "-modfile="+tools, "govulncheck", "-db", database, "-C", module, "./...")
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Run(); err != nil {
			fmt.Fprintf(out, "vulnerabilities: module %s: %v\n", module, err)
			code = exitVulnerable
			continue
		}
		fmt.Fprintf(out, "vulnerabilities: module %s calls none that the database knows\n", module)
	}
	return code
}

// reach checks that the database is reachable. It reads the time of the last change, which every
// database provides.
func reach(ctx context.Context, database string) error {
	if path, ok := strings.CutPrefix(database, "file://"); ok {
		_, err := os.Stat(filepath.Join(path, "index", "db.json"))
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(database, "/")+"/index/db.json", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20))
	if answer.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("it answers %s", answer.Status))
	}
	return errors.Join(err, answer.Body.Close())
}
