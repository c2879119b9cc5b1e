package workspace

import (
	"bytes"
	"fmt"
	"strings"
)

const (
	contextLines = 3
	// maxEdits bounds the work of comparing two texts. If more lines differ, the middle counts as
	// replaced.
	maxEdits = 2000
)

// edit is a difference between two texts: lines [a0,a1) of the old text are replaced by lines
// [b0,b1) of the new one.
type edit struct{ a0, a1, b0, b1 int }

// splitLines splits a text into lines with their newlines.
func splitLines(text []byte) []string {
	if len(text) == 0 {
		return nil
	}
	return strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
}

// isBinary uses git's heuristic: a NUL near the beginning.
func isBinary(data []byte) bool { return bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 }

// compare returns the differences between two lists of lines, in order.
func compare(a, b []string) []edit {
	prefix := 0
	for prefix < len(a) && prefix < len(b) && a[prefix] == b[prefix] {
		prefix++
	}
	suffix := 0
	for suffix < len(a)-prefix && suffix < len(b)-prefix && a[len(a)-1-suffix] == b[len(b)-1-suffix] {
		suffix++
	}
	a, b = a[prefix:len(a)-suffix], b[prefix:len(b)-suffix]
	if len(a) == 0 && len(b) == 0 {
		return nil
	}
	edits := shortest(a, b)
	for i := range edits {
		edits[i].a0 += prefix
		edits[i].a1 += prefix
		edits[i].b0 += prefix
		edits[i].b1 += prefix
	}
	return edits
}

// shortest finds the shortest edit script from a to b with Myers' algorithm.
func shortest(a, b []string) []edit {
	n, m := len(a), len(b)
	most := min(n+m, maxEdits)
	v := make([]int32, 2*most+3)
	var trace [][]int32
	at := func(k int) int { return k + most + 1 }
	for d := 0; d <= most; d++ {
		trace = append(trace, append([]int32(nil), v[at(-d)-1:at(d)+2]...))
		for k := -d; k <= d; k += 2 {
			x := int(v[at(k-1)]) + 1
			if k == -d || k != d && v[at(k-1)] < v[at(k+1)] {
				x = int(v[at(k+1)])
			}
			y := x - k
			for x < n && y < m && x >= 0 && y >= 0 && a[x] == b[y] {
				x++
				y++
			}
			v[at(k)] = int32(x)
			if x >= n && y >= m {
				return backtrack(trace, n, m)
			}
		}
	}
	return []edit{{0, n, 0, m}}
}

// backtrack follows the furthest points back to the beginning.
func backtrack(trace [][]int32, n, m int) []edit {
	var edits []edit
	x, y := n, m
	for d := len(trace) - 1; d > 0; d-- {
		v := trace[d] // v[k+d+1] is the point of diagonal k before step d
		k := x - y
		get := func(k int) int { return int(v[k+d+1]) }
		down := k == -d || k != d && get(k-1) < get(k+1)
		prev := k - 1
		if down {
			prev = k + 1
		}
		px := get(prev)
		py := px - prev
		one := edit{px, px + 1, py, py}
		if down {
			one = edit{px, px, py, py + 1}
		}
		if last := len(edits) - 1; last >= 0 && edits[last].a0 == one.a1 && edits[last].b0 == one.b1 {
			edits[last].a0, edits[last].b0 = one.a0, one.b0
		} else {
			edits = append(edits, one)
		}
		x, y = px, py
	}
	for i, j := 0, len(edits)-1; i < j; i, j = i+1, j-1 {
		edits[i], edits[j] = edits[j], edits[i]
	}
	return edits
}

// unified writes a diff in git's format and counts its lines. A nil text is a file that does not
// exist.
func unified(w *bytes.Buffer, path string, before, after []byte) (additions, deletions int64) {
	from, to := "a/"+path, "b/"+path
	fmt.Fprintf(w, "diff --git a/%s b/%s\n", path, path)
	switch {
	case before == nil:
		w.WriteString("new file mode 100644\n")
		from = "/dev/null"
	case after == nil:
		w.WriteString("deleted file mode 100644\n")
		to = "/dev/null"
	}
	if isBinary(before) || isBinary(after) {
		fmt.Fprintf(w, "Binary files %s and %s differ\n", from, to)
		return 0, 0
	}
	a, b := splitLines(before), splitLines(after)
	openA, openB := open(before), open(after)
	mark(a, openA)
	mark(b, openB)
	edits := compare(a, b)
	if len(edits) == 0 {
		return 0, 0
	}
	fmt.Fprintf(w, "--- %s\n+++ %s\n", from, to)
	for len(edits) > 0 {
		n := 1
		for n < len(edits) && edits[n].a0-edits[n-1].a1 <= 2*contextLines {
			n++
		}
		writeHunk(w, a, b, edits[:n])
		for _, e := range edits[:n] {
			additions += int64(e.b1 - e.b0)
			deletions += int64(e.a1 - e.a0)
		}
		edits = edits[n:]
	}
	return additions, deletions
}

// open reports whether a text ends without a newline.
func open(text []byte) bool { return len(text) > 0 && text[len(text)-1] != '\n' }

// mark appends a newline to the last line, or the marker that it has none, so that the two compare
// as different.
func mark(lines []string, isOpen bool) {
	if len(lines) == 0 {
		return
	}
	end := "\n"
	if isOpen {
		end = "\n\\ No newline at end of file\n"
	}
	lines[len(lines)-1] += end
}

func writeHunk(w *bytes.Buffer, a, b []string, edits []edit) {
	first, last := edits[0], edits[len(edits)-1]
	before := min(contextLines, first.a0)
	after := min(contextLines, len(a)-last.a1)
	fmt.Fprintf(w, "@@ -%s +%s @@\n",
		span(first.a0-before, last.a1+after), span(first.b0-before, last.b1+after))
	at := first.a0 - before
	line := func(sign byte, text string) {
		w.WriteByte(sign)
		w.WriteString(text)
	}
	for _, e := range edits {
		for ; at < e.a0; at++ {
			line(' ', a[at])
		}
		for ; at < e.a1; at++ {
			line('-', a[at])
		}
		for _, text := range b[e.b0:e.b1] {
			line('+', text)
		}
	}
	for end := at + after; at < end; at++ {
		line(' ', a[at])
	}
}

// span formats a range of lines for a hunk's header.
func span(from, to int) string {
	switch n := to - from; n {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprintf("%d", from+1)
	default:
		return fmt.Sprintf("%d,%d", from+1, n)
	}
}
