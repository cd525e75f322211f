package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// readDockerfile reads the configuration of an image from the last stage of a Dockerfile. It knows
// the instructions of deploy/Dockerfile, and refuses others.
func readDockerfile(name string) (map[string]any, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	_, last, found := strings.Cut(string(text), "\nFROM scratch\n")
	if !found {
		return nil, fmt.Errorf("%s: there is no line FROM scratch", name)
	}
	config := map[string]any{}
	for line := range strings.Lines(last) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if err := configure(config, instruction, rest); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, instruction, err)
		}
	}
	if config["User"] != fmt.Sprintf("%d:%d", owner, owner) {
		return nil, fmt.Errorf("%s: the user is not %d, the owner of /data", name, owner)
	}
	return config, nil
}

// configure adds an instruction to a configuration.
func configure(config map[string]any, instruction, rest string) (err error) {
	switch instruction {
	case "", "COPY": // image.layer adds the files
	case "USER":
		config["User"] = rest
	case "STOPSIGNAL":
		config["StopSignal"] = rest
	case "ENV":
		config["Env"] = append([]string{"PATH=/usr/bin"}, strings.Fields(rest)...)
	case "VOLUME":
		config["Volumes"] = set(rest)
	case "EXPOSE":
		config["ExposedPorts"] = set(rest)
	case "ENTRYPOINT":
		config["Entrypoint"], err = command(rest)
	case "CMD":
		config["Cmd"], err = command(rest)
	case "HEALTHCHECK":
		config["Healthcheck"], err = healthcheck(rest)
	default:
		err = fmt.Errorf("unknown instruction")
	}
	return err
}

// set returns a set of words as Docker writes it: an object whose members are empty objects.
func set(words string) map[string]any {
	all := map[string]any{}
	for _, word := range strings.Fields(words) {
		all[word] = struct{}{}
	}
	return all
}

func command(text string) (list []string, err error) {
	err = json.Unmarshal([]byte(text), &list)
	return list, err
}

func healthcheck(text string) (map[string]any, error) {
	flags, run, found := strings.Cut(text, " CMD ")
	if !found {
		return nil, fmt.Errorf("there is no CMD")
	}
	list, err := command(run)
	check := map[string]any{"Test": append([]string{"CMD"}, list...)}
	for _, flag := range strings.Fields(flags) {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		if n, err := strconv.Atoi(value); err == nil {
			check["Retries"] = n
			continue
		}
		d, err := time.ParseDuration(value)
		if err != nil {
			return nil, err
		}
		check[map[string]string{"interval": "Interval", "timeout": "Timeout", "start-period": "StartPeriod"}[name]] = d
	}
	return check, err
}
