package terminal_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// command matches the terminal commands that a view may use.
var command = regexp.MustCompile(`^\x1b\[(\d*)([ACDJKm])`)

// emulate returns the final content of a terminal with width columns, including the rows that have
// scrolled away. The test fails on any other terminal command, and if the cursor moves above the
// first row or left of the first column.
func emulate(t *testing.T, width int, output string) string {
	t.Helper()
	rows, y, x := [][]rune{nil}, 0, 0
	for output != "" {
		var m []string
		if output[0] == '\x1b' {
			m = command.FindStringSubmatch(output[:min(len(output), 16)])
		}
		if m != nil {
			output = output[len(m[0]):]
			n, _ := strconv.Atoi(m[1]) // 0 if absent
			switch m[2] {
			case "A":
				y -= n
				require.GreaterOrEqual(t, y, 0, "above the first row")
			case "C":
				x += n
				require.Less(t, x, width, "right of the last column")
			case "D":
				x -= n
				require.GreaterOrEqual(t, x, 0, "left of the first column")
			case "J":
				rows = rows[:y+1]
				rows[y] = rows[y][:min(x, len(rows[y]))]
			case "K":
				rows[y] = rows[y][:min(x, len(rows[y]))]
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(output)
		output = output[size:]
		switch r {
		case '\r':
			x = 0
			continue
		case '\n':
			x = 0
			if y++; y == len(rows) {
				rows = append(rows, nil)
			}
			continue
		}
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) { // in a fuzzer require is slow
			require.Fail(t, "a command to the terminal", "%U before %q", r, output[:min(len(output), 20)])
		}
		if x == width {
			x = 0
			if y++; y == len(rows) {
				rows = append(rows, nil)
			}
		}
		for len(rows[y]) <= x {
			rows[y] = append(rows[y], ' ')
		}
		rows[y][x] = r
		x++
	}
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintln(&b, strings.TrimRight(string(row), " "))
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
