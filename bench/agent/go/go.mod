module agentbench

go 1.21
