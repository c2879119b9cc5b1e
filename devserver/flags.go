package main

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/server/common/log"

	"github.com/overwinter-dev/overwinter/devserver/internal/temporald"
)

// sessionSearchAttributes are the search attributes of the session workflow.
var sessionSearchAttributes = map[string]enumspb.IndexedValueType{
	"OverwinterStatus":     enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"OverwinterAgent":      enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"OverwinterOwner":      enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"OverwinterWorkspace":  enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	"OverwinterGeneration": enumspb.INDEXED_VALUE_TYPE_INT,
}

// commands are two names of the program's only command.
type commands struct {
	Serve  serveOptions `cmd:"" help:"Run the server until SIGTERM or Ctrl-C."`
	Server struct {
		StartDev serveOptions `cmd:"" name:"start-dev" help:"Same as serve; the Temporal SDK's test suite uses this name."`
	} `cmd:"" hidden:""`
}

// serveOptions are the flags of both names. The aliases are those of the temporal tool.
type serveOptions struct {
	IP            string        `name:"ip" default:"127.0.0.1" placeholder:"IP" help:"Address to listen on. Other addresses than loopback have no authentication. Default ${default}."`
	AllowUsers    string        `name:"allow-users" placeholder:"NAMES" help:"Users of this machine to serve on loopback besides this one and root, by name or ID; all for every user. Default: none."`
	Port          int           `default:"7233" placeholder:"N" help:"Port of the frontend (gRPC). Default ${default}."`
	UIPort        int           `name:"ui-port" default:"8233" placeholder:"N" help:"Port of the web UI, 0 for none. Default ${default}."`
	UIHost        []string      `name:"ui-host" placeholder:"NAME" help:"Host name under which browsers may call the web UI, besides localhost and IP addresses; repeatable."`
	Headless      bool          `help:"Disable the web UI, regardless of --ui-port."`
	DBFile        string        `name:"db-file" aliases:"db-filename" placeholder:"FILE" help:"SQLite file, created when missing. Default: in memory."`
	Sync          string        `default:"normal" enum:"normal,full" placeholder:"normal|full" help:"When commits reach the disk: normal survives the death of the process, full also a crash of the machine. Default ${default}."`
	Namespace     string        `default:"default" placeholder:"NAME" help:"Namespace, created when missing. Default ${default}."`
	Retention     time.Duration `default:"168h" placeholder:"DURATION" help:"Retention of closed workflows, for a namespace that is created now. Default ${default}."`
	Attribute     []string      `name:"search-attribute" sep:"none" placeholder:"NAME=TYPE" help:"Search attribute to register in addition to overwinter's; repeatable."`
	DynamicConfig []string      `name:"dynamic-config-value" sep:"none" placeholder:"KEY=YAML" help:"Dynamic configuration of the Temporal server; repeatable."`
	LogLevel      string        `default:"warn" enum:"debug,info,warn,error,never" placeholder:"LEVEL" help:"Log level: debug, info, warn, error or never. Default ${default}."`
	LogFormat     string        `default:"json" enum:"json,text,pretty" placeholder:"FORMAT" help:"Log format, on stderr: json or text. Default ${default}."`
	ExitWithStdin bool          `help:"Stop when stdin ends and, on Linux, when the parent process dies: a killed supervisor leaves no process running."`
}

// config returns the configuration from the flags, with parsed search attributes and settings.
func (o serveOptions) config() (temporald.Config, error) {
	ip, err := netip.ParseAddr(o.IP)
	if err != nil {
		return temporald.Config{}, fmt.Errorf("--ip: %q is not an IP address", o.IP)
	}
	attributes := maps.Clone(sessionSearchAttributes)
	for _, pair := range o.Attribute {
		name, kind, _ := strings.Cut(pair, "=")
		value, err := enumspb.IndexedValueTypeFromString(kind)
		if name == "" || err != nil || value == enumspb.INDEXED_VALUE_TYPE_UNSPECIFIED {
			return temporald.Config{}, fmt.Errorf("--search-attribute %s: not of the form Name=Type with a type like Keyword or Int", pair)
		}
		if own, ok := sessionSearchAttributes[name]; ok && own != value {
			return temporald.Config{}, fmt.Errorf("--search-attribute %s: overwinter needs it as %s", pair, own)
		}
		attributes[name] = value
	}
	settings := make(map[string]string, len(o.DynamicConfig))
	for _, pair := range o.DynamicConfig {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return temporald.Config{}, fmt.Errorf("--dynamic-config-value %s: not of the form key=value", pair)
		}
		settings[key] = value
	}
	uiPort := o.UIPort
	if o.Headless {
		uiPort = 0
	}
	return temporald.Config{
		IP:               ip,
		AllowUsers:       o.AllowUsers,
		Port:             o.Port,
		UIPort:           uiPort,
		UIHosts:          lower(o.UIHost),
		DatabaseFile:     o.DBFile,
		Sync:             o.Sync,
		Namespace:        o.Namespace,
		Retention:        o.Retention,
		SearchAttributes: attributes,
		DynamicConfig:    settings,
	}, nil
}

func lower(names []string) []string {
	var out []string
	for _, name := range names {
		out = append(out, strings.ToLower(name))
	}
	return out
}

// logger writes Temporal's log to stderr.
func (o serveOptions) logger() log.Logger {
	if o.LogLevel == "never" {
		return log.NewNoopLogger()
	}
	format := o.LogFormat
	if format != "json" {
		format = "console"
	}
	return log.NewZapLogger(log.BuildZapLogger(log.Config{Level: o.LogLevel, Format: format}))
}
