package metrics

// NamesOfOneNode returns the names of all metrics of a service that stores its data in a journal,
// which is all metrics but those of a cluster.
func NamesOfOneNode() []string {
	var names []string
	for _, r := range table {
		if r.needs != itsCluster {
			names = append(names, r.name)
		}
	}
	return names
}
