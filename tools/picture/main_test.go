package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// texts returns the lines of a picture, and fails if it is not XML.
func texts(t *testing.T, svg []byte) (lines []string) {
	t.Helper()
	var in bool
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return lines
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			in = token.Name.Local == "text"
		case xml.EndElement:
			in = false
		case xml.CharData:
			if in {
				lines = append(lines, string(token))
			}
		}
	}
}

func TestDrawKeepsOutput(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", columns+1)
	svg := draw([]line{{comment: "a < b"}, {command: "echo '&'"}, {}, {output: "  indented \"quoted\""}, {output: long}})
	require.Equal(t, []string{
		"# a < b", "$ echo '&'", "  indented \"quoted\"", strings.Repeat("é", columns), "é",
	}, texts(t, svg))
}

// TestPictureShowsSession checks that the README's picture shows a session that slept and
// woke, with the commands of this program.
func TestPictureShowsSession(t *testing.T) {
	t.Parallel()
	svg, err := os.ReadFile(filepath.Join("..", "..", "docs", "session.svg"))
	require.NoError(t, err)
	shown := strings.Join(texts(t, svg), "\n")
	for _, s := range steps {
		require.Contains(t, shown, "$ "+s.command, "make picture writes it again")
	}
	require.Contains(t, shown, "session hibernated (idle)")
	require.Contains(t, shown, "restored: full")
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(readme), "(docs/session.svg)")
}
