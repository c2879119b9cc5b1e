package hostports_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/hostports"
)

func TestSetsAreReadAndPrinted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", " ": "", "8901": "8901", "8901, 11434": "8901,11434", "8000-8099,1": "8000-8099,1", "5-5": "5"} {
		s, err := hostports.Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, s.String())
	}
	for _, text := range []string{"x", "0", "65536", "-1", "9-8", "1,,2", "1;2", strings.Repeat("1,", 100) + "1"} {
		_, err := hostports.Parse(text)
		require.Error(t, err, text)
	}
}

func TestSetContainsItsPorts(t *testing.T) {
	t.Parallel()
	s, err := hostports.Parse("80,8000-8002")
	require.NoError(t, err)
	for port, in := range map[uint16]bool{80: true, 8000: true, 8001: true, 8002: true, 79: false, 8003: false, 0: false, 65535: false} {
		require.Equal(t, in, s.Contains(port), port)
	}
	require.False(t, hostports.Set{}.Contains(80))
}

func TestFirstPortsAreInTheirOrder(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]uint16{
		"": nil, "9,8": {9, 8}, "8000-8099,5": {5}, "3-4,4,65535,1-2": {3, 4, 65535}, "65533-65535": {65533, 65534, 65535}, "1-4": nil,
	} {
		s, err := hostports.Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, s.First(3), text)
	}
}
