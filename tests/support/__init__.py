"""What tests share: samples, tables, servers, faults and a clock."""
