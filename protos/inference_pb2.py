"""Messages of inference.proto. Written by protos/generate.py; do not edit."""

from protos import private_pool

DESCRIPTOR = private_pool.load_file(
    b'\n\x0finference.proto\x12\tinference"\x13\n\x11ServerLiveRequest"(\n\x12ServerLiveResponse\x12'
    b'\x12\n\x04live\x18\x01 \x01(\x08R\x04live"\x14\n\x12ServerReadyRequest"+\n\x13ServerReadyResponse\x12\x14\n\x05read'
    b'y\x18\x01 \x01(\x08R\x05ready"A\n\x11ModelReadyRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\t'
    b'R\x07version"*\n\x12ModelReadyResponse\x12\x14\n\x05ready\x18\x01 \x01(\x08R\x05ready"\x17\n\x15ServerMetadataR'
    b'equest"f\n\x16ServerMetadataResponse\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07v'
    b'ersion\x12\x1e\n\nextensions\x18\x03 \x03(\tR\nextensions"D\n\x14ModelMetadataRequest\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version"\xcf\x02\n\x15ModelMetadataResponse\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x1a\n\x08versions\x18\x02 \x03(\tR\x08versions\x12\x1a\n\x08platform\x18\x03 \x01(\tR\x08platform\x12G\n\x06in'
    b'puts\x18\x04 \x03(\x0b2/.inference.ModelMetadataResponse.TensorMetadataR\x06inputs\x12I\n\x07o'
    b'utputs\x18\x05 \x03(\x0b2/.inference.ModelMetadataResponse.TensorMetadataR\x07outputs\x1aV'
    b'\n\x0eTensorMetadata\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datatype\x12\x14\n\x05shap'
    b'e\x18\x03 \x03(\x03R\x05shape"\xd7\x01\n\x0eInferParameter\x12\x1f\n\nbool_param\x18\x01 \x01(\x08H\x00R\tboolParam\x12!\n\x0bin'
    b't64_param\x18\x02 \x01(\x03H\x00R\nint64Param\x12#\n\x0cstring_param\x18\x03 \x01(\tH\x00R\x0bstringParam\x12#\n\x0cdo'
    b'uble_param\x18\x04 \x01(\x01H\x00R\x0bdoubleParam\x12#\n\x0cuint64_param\x18\x05 \x01(\x04H\x00R\x0buint64ParamB\x12\n\x10'
    b'parameter_choice"\xc3\x02\n\x13InferTensorContents\x12#\n\rbool_contents\x18\x01 \x03(\x08R\x0cboolCon'
    b'tents\x12!\n\x0cint_contents\x18\x02 \x03(\x05R\x0bintContents\x12%\n\x0eint64_contents\x18\x03 \x03(\x03R\rint64C'
    b"ontents\x12#\n\ruint_contents\x18\x04 \x03(\rR\x0cuintContents\x12'\n\x0fuint64_contents\x18\x05 \x03(\x04R\x0eu"
    b'int64Contents\x12#\n\rfp32_contents\x18\x06 \x03(\x02R\x0cfp32Contents\x12#\n\rfp64_contents\x18\x07 \x03('
    b'\x01R\x0cfp64Contents\x12%\n\x0ebytes_contents\x18\x08 \x03(\x0cR\rbytesContents"\x9d\x08\n\x11ModelInferReq'
    b'uest\x12\x1d\n\nmodel_name\x18\x01 \x01(\tR\tmodelName\x12#\n\rmodel_version\x18\x02 \x01(\tR\x0cmodelVersion'
    b'\x12\x0e\n\x02id\x18\x03 \x01(\tR\x02id\x12L\n\nparameters\x18\x04 \x03(\x0b2,.inference.ModelInferRequest.Param'
    b'etersEntryR\nparameters\x12E\n\x06inputs\x18\x05 \x03(\x0b2-.inference.ModelInferRequest.Inf'
    b'erInputTensorR\x06inputs\x12Q\n\x07outputs\x18\x06 \x03(\x0b27.inference.ModelInferRequest.Inf'
    b'erRequestedOutputTensorR\x07outputs\x12,\n\x12raw_input_contents\x18\x07 \x03(\x0cR\x10rawInputCo'
    b'ntents\x1a\xcd\x02\n\x10InferInputTensor\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datat'
    b'ype\x12\x14\n\x05shape\x18\x03 \x03(\x03R\x05shape\x12]\n\nparameters\x18\x04 \x03(\x0b2=.inference.ModelInferRequ'
    b'est.InferInputTensor.ParametersEntryR\nparameters\x12:\n\x08contents\x18\x05 \x01(\x0b2\x1e.inf'
    b'erence.InferTensorContentsR\x08contents\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03ke'
    b'y\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference.InferParameterR\x05value:\x028\x01\x1a\xf3\x01\n\x1aInferRequeste'
    b'dOutputTensor\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12g\n\nparameters\x18\x02 \x03(\x0b2G.inference.ModelI'
    b'nferRequest.InferRequestedOutputTensor.ParametersEntryR\nparameters\x1aX\n\x0fPa'
    b'rametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference.InferParamete'
    b'rR\x05value:\x028\x01\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.infer'
    b'ence.InferParameterR\x05value:\x028\x01"\xdf\x05\n\x12ModelInferResponse\x12\x1d\n\nmodel_name\x18\x01 \x01('
    b'\tR\tmodelName\x12#\n\rmodel_version\x18\x02 \x01(\tR\x0cmodelVersion\x12\x0e\n\x02id\x18\x03 \x01(\tR\x02id\x12M\n\npar'
    b'ameters\x18\x04 \x03(\x0b2-.inference.ModelInferResponse.ParametersEntryR\nparameters'
    b'\x12I\n\x07outputs\x18\x05 \x03(\x0b2/.inference.ModelInferResponse.InferOutputTensorR\x07outp'
    b'uts\x12.\n\x13raw_output_contents\x18\x06 \x03(\x0cR\x11rawOutputContents\x1a\xd0\x02\n\x11InferOutputTenso'
    b'r\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datatype\x12\x14\n\x05shape\x18\x03 \x03(\x03R\x05shape\x12'
    b'_\n\nparameters\x18\x04 \x03(\x0b2?.inference.ModelInferResponse.InferOutputTensor.Par'
    b'ametersEntryR\nparameters\x12:\n\x08contents\x18\x05 \x01(\x0b2\x1e.inference.InferTensorConten'
    b'tsR\x08contents\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.infer'
    b'ence.InferParameterR\x05value:\x028\x01\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05v'
    b'alue\x18\x02 \x01(\x0b2\x19.inference.InferParameterR\x05value:\x028\x01"\x85\x01\n\x18ModelStreamInferRes'
    b'ponse\x12#\n\rerror_message\x18\x01 \x01(\tR\x0cerrorMessage\x12D\n\x0einfer_response\x18\x02 \x01(\x0b2\x1d.inf'
    b'erence.ModelInferResponseR\rinferResponse"B\n\x12ModelConfigRequest\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version"E\n\x13ModelConfigResponse\x12.\n\x06config\x18\x01 '
    b'\x01(\x0b2\x16.inference.ModelConfigR\x06config"\xb9\x01\n\x12ModelInstanceGroup\x12\x12\n\x04name\x18\x01 \x01(\t'
    b'R\x04name\x12\x14\n\x05count\x18\x02 \x01(\x05R\x05count\x126\n\x04kind\x18\x04 \x01(\x0e2".inference.ModelInstanceGrou'
    b'p.KindR\x04kind"A\n\x04Kind\x12\r\n\tKIND_AUTO\x10\x00\x12\x0c\n\x08KIND_GPU\x10\x01\x12\x0c\n\x08KIND_CPU\x10\x02\x12\x0e\n\nKIND_'
    b'MODEL\x10\x03"f\n\nModelInput\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x120\n\tdata_type\x18\x02 \x01(\x0e2\x13.inference'
    b'.DataTypeR\x08dataType\x12\x12\n\x04dims\x18\x04 \x03(\x03R\x04dims"g\n\x0bModelOutput\x12\x12\n\x04name\x18\x01 \x01(\tR\x04na'
    b'me\x120\n\tdata_type\x18\x02 \x01(\x0e2\x13.inference.DataTypeR\x08dataType\x12\x12\n\x04dims\x18\x03 \x03(\x03R\x04dims'
    b'"\xaa\x02\n\x10ModelQueuePolicy\x12P\n\x0etimeout_action\x18\x01 \x01(\x0e2).inference.ModelQueuePoli'
    b'cy.TimeoutActionR\rtimeoutAction\x12@\n\x1cdefault_timeout_microseconds\x18\x02 \x01(\x04R\x1ad'
    b'efaultTimeoutMicroseconds\x124\n\x16allow_timeout_override\x18\x03 \x01(\x08R\x14allowTimeoutO'
    b'verride\x12$\n\x0emax_queue_size\x18\x04 \x01(\rR\x0cmaxQueueSize"&\n\rTimeoutAction\x12\n\n\x06REJECT'
    b'\x10\x00\x12\t\n\x05DELAY\x10\x01"\xe4\x02\n\x14ModelDynamicBatching\x120\n\x14preferred_batch_size\x18\x01 \x03(\x05R\x12pr'
    b'eferredBatchSize\x12?\n\x1cmax_queue_delay_microseconds\x18\x02 \x01(\x04R\x19maxQueueDelayMic'
    b"roseconds\x12+\n\x11preserve_ordering\x18\x03 \x01(\x08R\x10preserveOrdering\x12'\n\x0fpriority_level"
    b's\x18\x04 \x01(\x04R\x0epriorityLevels\x124\n\x16default_priority_level\x18\x05 \x01(\x04R\x14defaultPriority'
    b'Level\x12M\n\x14default_queue_policy\x18\x06 \x01(\x0b2\x1b.inference.ModelQueuePolicyR\x12defaul'
    b'tQueuePolicy"3\n\x0eModelParameter\x12!\n\x0cstring_value\x18\x01 \x01(\tR\x0bstringValue"\xdb\x04\n\x0bMo'
    b'delConfig\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08platform\x18\x02 \x01(\tR\x08platform\x12$\n\x0emax_batch_s'
    b'ize\x18\x04 \x01(\x05R\x0cmaxBatchSize\x12+\n\x05input\x18\x05 \x03(\x0b2\x15.inference.ModelInputR\x05input\x12.\n\x06'
    b'output\x18\x06 \x03(\x0b2\x16.inference.ModelOutputR\x06output\x12D\n\x0einstance_group\x18\x07 \x03(\x0b2\x1d.i'
    b'nference.ModelInstanceGroupR\rinstanceGroup\x124\n\x16default_model_filename\x18\x08 \x01'
    b'(\tR\x14defaultModelFilename\x12L\n\x10dynamic_batching\x18\x0b \x01(\x0b2\x1f.inference.ModelDyna'
    b'micBatchingH\x00R\x0fdynamicBatching\x12F\n\nparameters\x18\x0e \x03(\x0b2&.inference.ModelConf'
    b'ig.ParametersEntryR\nparameters\x12\x18\n\x07backend\x18\x11 \x01(\tR\x07backend\x1aX\n\x0fParametersEn'
    b'try\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference.ModelParameterR\x05value:\x02'
    b'8\x01B\x13\n\x11scheduling_choice"F\n\x16ModelStatisticsRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n'
    b'\x07version\x18\x02 \x01(\tR\x07version"V\n\x17ModelStatisticsResponse\x12;\n\x0bmodel_stats\x18\x01 \x03(\x0b2'
    b'\x1a.inference.ModelStatisticsR\nmodelStats"9\n\x11StatisticDuration\x12\x14\n\x05count\x18\x01 '
    b'\x01(\x04R\x05count\x12\x0e\n\x02ns\x18\x02 \x01(\x04R\x02ns"\xf2\x03\n\x0fInferStatistics\x126\n\x07success\x18\x01 \x01(\x0b2\x1c.infere'
    b'nce.StatisticDurationR\x07success\x120\n\x04fail\x18\x02 \x01(\x0b2\x1c.inference.StatisticDurati'
    b'onR\x04fail\x122\n\x05queue\x18\x03 \x01(\x0b2\x1c.inference.StatisticDurationR\x05queue\x12A\n\rcompute_'
    b'input\x18\x04 \x01(\x0b2\x1c.inference.StatisticDurationR\x0ccomputeInput\x12A\n\rcompute_infer'
    b'\x18\x05 \x01(\x0b2\x1c.inference.StatisticDurationR\x0ccomputeInfer\x12C\n\x0ecompute_output\x18\x06 \x01'
    b'(\x0b2\x1c.inference.StatisticDurationR\rcomputeOutput\x129\n\tcache_hit\x18\x07 \x01(\x0b2\x1c.inf'
    b'erence.StatisticDurationR\x08cacheHit\x12;\n\ncache_miss\x18\x08 \x01(\x0b2\x1c.inference.Stati'
    b'sticDurationR\tcacheMiss"N\n\x0bMemoryUsage\x12\x12\n\x04type\x18\x01 \x01(\tR\x04type\x12\x0e\n\x02id\x18\x02 \x01(\x03R\x02'
    b'id\x12\x1b\n\tbyte_size\x18\x03 \x01(\x04R\x08byteSize"\x80\x02\n\x14InferBatchStatistics\x12\x1d\n\nbatch_size\x18\x01'
    b' \x01(\x04R\tbatchSize\x12A\n\rcompute_input\x18\x02 \x01(\x0b2\x1c.inference.StatisticDurationR\x0cco'
    b'mputeInput\x12A\n\rcompute_infer\x18\x03 \x01(\x0b2\x1c.inference.StatisticDurationR\x0ccompute'
    b'Infer\x12C\n\x0ecompute_output\x18\x04 \x01(\x0b2\x1c.inference.StatisticDurationR\rcomputeOutp'
    b'ut"\xfa\x02\n\x0fModelStatistics\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version\x12%\n\x0e'
    b"last_inference\x18\x03 \x01(\x04R\rlastInference\x12'\n\x0finference_count\x18\x04 \x01(\x04R\x0einferenceC"
    b"ount\x12'\n\x0fexecution_count\x18\x05 \x01(\x04R\x0eexecutionCount\x12C\n\x0finference_stats\x18\x06 \x01(\x0b2\x1a"
    b'.inference.InferStatisticsR\x0einferenceStats\x12@\n\x0bbatch_stats\x18\x07 \x03(\x0b2\x1f.infere'
    b'nce.InferBatchStatisticsR\nbatchStats\x129\n\x0cmemory_usage\x18\x08 \x03(\x0b2\x16.inference.M'
    b'emoryUsageR\x0bmemoryUsage"\xba\x01\n\x18ModelRepositoryParameter\x12\x1f\n\nbool_param\x18\x01 \x01(\x08'
    b'H\x00R\tboolParam\x12!\n\x0bint64_param\x18\x02 \x01(\x03H\x00R\nint64Param\x12#\n\x0cstring_param\x18\x03 \x01(\tH\x00'
    b'R\x0bstringParam\x12!\n\x0bbytes_param\x18\x04 \x01(\x0cH\x00R\nbytesParamB\x12\n\x10parameter_choice"W\n\x16'
    b"RepositoryIndexRequest\x12'\n\x0frepository_name\x18\x01 \x01(\tR\x0erepositoryName\x12\x14\n\x05ready"
    b'\x18\x02 \x01(\x08R\x05ready"\xca\x01\n\x17RepositoryIndexResponse\x12E\n\x06models\x18\x01 \x03(\x0b2-.inference.Re'
    b'positoryIndexResponse.ModelIndexR\x06models\x1ah\n\nModelIndex\x12\x12\n\x04name\x18\x01 \x01(\tR\x04na'
    b'me\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version\x12\x14\n\x05state\x18\x03 \x01(\tR\x05state\x12\x16\n\x06reason\x18\x04 \x01(\tR\x06reas'
    b'on"\x9f\x02\n\x1aRepositoryModelLoadRequest\x12\'\n\x0frepository_name\x18\x01 \x01(\tR\x0erepositoryNa'
    b'me\x12\x1d\n\nmodel_name\x18\x02 \x01(\tR\tmodelName\x12U\n\nparameters\x18\x03 \x03(\x0b25.inference.Reposi'
    b'toryModelLoadRequest.ParametersEntryR\nparameters\x1ab\n\x0fParametersEntry\x12\x10\n\x03k'
    b'ey\x18\x01 \x01(\tR\x03key\x129\n\x05value\x18\x02 \x01(\x0b2#.inference.ModelRepositoryParameterR\x05value'
    b':\x028\x01"\x1d\n\x1bRepositoryModelLoadResponse"\xa3\x02\n\x1cRepositoryModelUnloadRequest\x12\'\n\x0f'
    b'repository_name\x18\x01 \x01(\tR\x0erepositoryName\x12\x1d\n\nmodel_name\x18\x02 \x01(\tR\tmodelName\x12W\n\n'
    b'parameters\x18\x03 \x03(\x0b27.inference.RepositoryModelUnloadRequest.ParametersEntr'
    b'yR\nparameters\x1ab\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x129\n\x05value\x18\x02 \x01(\x0b2#.infe'
    b'rence.ModelRepositoryParameterR\x05value:\x028\x01"\x1f\n\x1dRepositoryModelUnloadRespon'
    b'se"5\n\x1fSystemSharedMemoryStatusRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"\xd7\x02\n SystemShar'
    b'edMemoryStatusResponse\x12R\n\x07regions\x18\x01 \x03(\x0b28.inference.SystemSharedMemorySt'
    b'atusResponse.RegionsEntryR\x07regions\x1ai\n\x0cRegionStatus\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x10'
    b'\n\x03key\x18\x02 \x01(\tR\x03key\x12\x16\n\x06offset\x18\x03 \x01(\x04R\x06offset\x12\x1b\n\tbyte_size\x18\x04 \x01(\x04R\x08byteSize\x1at\n'
    b'\x0cRegionsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12N\n\x05value\x18\x02 \x01(\x0b28.inference.SystemSharedM'
    b'emoryStatusResponse.RegionStatusR\x05value:\x028\x01"~\n!SystemSharedMemoryRegiste'
    b'rRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x10\n\x03key\x18\x02 \x01(\tR\x03key\x12\x16\n\x06offset\x18\x03 \x01(\x04R\x06offset\x12\x1b'
    b'\n\tbyte_size\x18\x04 \x01(\x04R\x08byteSize"$\n"SystemSharedMemoryRegisterResponse"9\n#Sys'
    b'temSharedMemoryUnregisterRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"&\n$SystemSharedMemo'
    b'ryUnregisterResponse"3\n\x1dCudaSharedMemoryStatusRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04nam'
    b'e"\xc4\x02\n\x1eCudaSharedMemoryStatusResponse\x12P\n\x07regions\x18\x01 \x03(\x0b26.inference.CudaSh'
    b'aredMemoryStatusResponse.RegionsEntryR\x07regions\x1a\\\n\x0cRegionStatus\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x1b\n\tdevice_id\x18\x02 \x01(\x04R\x08deviceId\x12\x1b\n\tbyte_size\x18\x03 \x01(\x04R\x08byteSize\x1ar\n\x0c'
    b'RegionsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12L\n\x05value\x18\x02 \x01(\x0b26.inference.CudaSharedMemo'
    b'ryStatusResponse.RegionStatusR\x05value:\x028\x01"\x8e\x01\n\x1fCudaSharedMemoryRegisterReq'
    b'uest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1d\n\nraw_handle\x18\x02 \x01(\x0cR\trawHandle\x12\x1b\n\tdevice_id\x18\x03 \x01'
    b'(\x03R\x08deviceId\x12\x1b\n\tbyte_size\x18\x04 \x01(\x04R\x08byteSize""\n CudaSharedMemoryRegisterRes'
    b'ponse"7\n!CudaSharedMemoryUnregisterRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"$\n"CudaSh'
    b'aredMemoryUnregisterResponse"\x8e\x02\n\x13TraceSettingRequest\x12H\n\x08settings\x18\x01 \x03(\x0b2,'
    b'.inference.TraceSettingRequest.SettingsEntryR\x08settings\x12\x1d\n\nmodel_name\x18\x02 \x01'
    b'(\tR\tmodelName\x1a$\n\x0cSettingValue\x12\x14\n\x05value\x18\x01 \x03(\tR\x05value\x1ah\n\rSettingsEntry\x12\x10\n\x03'
    b'key\x18\x01 \x01(\tR\x03key\x12A\n\x05value\x18\x02 \x01(\x0b2+.inference.TraceSettingRequest.SettingVal'
    b'ueR\x05value:\x028\x01"\xf2\x01\n\x14TraceSettingResponse\x12I\n\x08settings\x18\x01 \x03(\x0b2-.inference.Tra'
    b'ceSettingResponse.SettingsEntryR\x08settings\x1a$\n\x0cSettingValue\x12\x14\n\x05value\x18\x01 \x03(\t'
    b'R\x05value\x1ai\n\rSettingsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12B\n\x05value\x18\x02 \x01(\x0b2,.inference.Tr'
    b'aceSettingResponse.SettingValueR\x05value:\x028\x01"\xd6\x02\n\x12LogSettingsRequest\x12G\n\x08set'
    b'tings\x18\x01 \x03(\x0b2+.inference.LogSettingsRequest.SettingsEntryR\x08settings\x1a\x8d\x01\n\x0cS'
    b'ettingValue\x12\x1f\n\nbool_param\x18\x01 \x01(\x08H\x00R\tboolParam\x12#\n\x0cuint32_param\x18\x02 \x01(\rH\x00R\x0bui'
    b'nt32Param\x12#\n\x0cstring_param\x18\x03 \x01(\tH\x00R\x0bstringParamB\x12\n\x10parameter_choice\x1ag\n\rSe'
    b'ttingsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12@\n\x05value\x18\x02 \x01(\x0b2*.inference.LogSettingsRequ'
    b'est.SettingValueR\x05value:\x028\x01"\xd9\x02\n\x13LogSettingsResponse\x12H\n\x08settings\x18\x01 \x03(\x0b2,.'
    b'inference.LogSettingsResponse.SettingsEntryR\x08settings\x1a\x8d\x01\n\x0cSettingValue\x12\x1f'
    b'\n\nbool_param\x18\x01 \x01(\x08H\x00R\tboolParam\x12#\n\x0cuint32_param\x18\x02 \x01(\rH\x00R\x0buint32Param\x12#\n\x0c'
    b'string_param\x18\x03 \x01(\tH\x00R\x0bstringParamB\x12\n\x10parameter_choice\x1ah\n\rSettingsEntry\x12\x10'
    b'\n\x03key\x18\x01 \x01(\tR\x03key\x12A\n\x05value\x18\x02 \x01(\x0b2+.inference.LogSettingsResponse.SettingV'
    b'alueR\x05value:\x028\x01*\xfa\x01\n\x08DataType\x12\x10\n\x0cTYPE_INVALID\x10\x00\x12\r\n\tTYPE_BOOL\x10\x01\x12\x0e\n\nTYPE_UI'
    b'NT8\x10\x02\x12\x0f\n\x0bTYPE_UINT16\x10\x03\x12\x0f\n\x0bTYPE_UINT32\x10\x04\x12\x0f\n\x0bTYPE_UINT64\x10\x05\x12\r\n\tTYPE_INT8\x10\x06\x12'
    b'\x0e\n\nTYPE_INT16\x10\x07\x12\x0e\n\nTYPE_INT32\x10\x08\x12\x0e\n\nTYPE_INT64\x10\t\x12\r\n\tTYPE_FP16\x10\n\x12\r\n\tTYPE_F'
    b'P32\x10\x0b\x12\r\n\tTYPE_FP64\x10\x0c\x12\x0f\n\x0bTYPE_STRING\x10\r\x12\r\n\tTYPE_BF16\x10\x0e2\xb7\x0f\n\x14GRPCInferenceSe'
    b'rvice\x12K\n\nServerLive\x12\x1c.inference.ServerLiveRequest\x1a\x1d.inference.ServerLive'
    b'Response"\x00\x12N\n\x0bServerReady\x12\x1d.inference.ServerReadyRequest\x1a\x1e.inference.Ser'
    b'verReadyResponse"\x00\x12K\n\nModelReady\x12\x1c.inference.ModelReadyRequest\x1a\x1d.inferen'
    b'ce.ModelReadyResponse"\x00\x12W\n\x0eServerMetadata\x12 .inference.ServerMetadataRequ'
    b'est\x1a!.inference.ServerMetadataResponse"\x00\x12T\n\rModelMetadata\x12\x1f.inference.Mo'
    b'delMetadataRequest\x1a .inference.ModelMetadataResponse"\x00\x12N\n\x0bModelConfig\x12\x1d.'
    b'inference.ModelConfigRequest\x1a\x1e.inference.ModelConfigResponse"\x00\x12Z\n\x0fModelS'
    b'tatistics\x12!.inference.ModelStatisticsRequest\x1a".inference.ModelStatistics'
    b'Response"\x00\x12K\n\nModelInfer\x12\x1c.inference.ModelInferRequest\x1a\x1d.inference.Model'
    b'InferResponse"\x00\x12Z\n\x0fRepositoryIndex\x12!.inference.RepositoryIndexRequest\x1a".'
    b'inference.RepositoryIndexResponse"\x00\x12f\n\x13RepositoryModelLoad\x12%.inference.R'
    b'epositoryModelLoadRequest\x1a&.inference.RepositoryModelLoadResponse"\x00\x12l\n\x15R'
    b"epositoryModelUnload\x12'.inference.RepositoryModelUnloadRequest\x1a(.inferenc"
    b'e.RepositoryModelUnloadResponse"\x00\x12[\n\x10ModelStreamInfer\x12\x1c.inference.ModelI'
    b'nferRequest\x1a#.inference.ModelStreamInferResponse"\x00(\x010\x01\x12u\n\x18SystemSharedMe'
    b'moryStatus\x12*.inference.SystemSharedMemoryStatusRequest\x1a+.inference.Syste'
    b'mSharedMemoryStatusResponse"\x00\x12{\n\x1aSystemSharedMemoryRegister\x12,.inference.'
    b'SystemSharedMemoryRegisterRequest\x1a-.inference.SystemSharedMemoryRegister'
    b'Response"\x00\x12\x81\x01\n\x1cSystemSharedMemoryUnregister\x12..inference.SystemSharedMemo'
    b'ryUnregisterRequest\x1a/.inference.SystemSharedMemoryUnregisterResponse"\x00\x12o'
    b'\n\x16CudaSharedMemoryStatus\x12(.inference.CudaSharedMemoryStatusRequest\x1a).inf'
    b'erence.CudaSharedMemoryStatusResponse"\x00\x12u\n\x18CudaSharedMemoryRegister\x12*.in'
    b'ference.CudaSharedMemoryRegisterRequest\x1a+.inference.CudaSharedMemoryRegi'
    b'sterResponse"\x00\x12{\n\x1aCudaSharedMemoryUnregister\x12,.inference.CudaSharedMemor'
    b'yUnregisterRequest\x1a-.inference.CudaSharedMemoryUnregisterResponse"\x00\x12Q\n\x0cT'
    b'raceSetting\x12\x1e.inference.TraceSettingRequest\x1a\x1f.inference.TraceSettingResp'
    b'onse"\x00\x12N\n\x0bLogSettings\x12\x1d.inference.LogSettingsRequest\x1a\x1e.inference.LogSett'
    b'ingsResponse"\x00b\x06proto3',
    'inference.proto',
)

_classes = private_pool.message_classes(DESCRIPTOR, __name__)
ServerLiveRequest = _classes['ServerLiveRequest']
ServerLiveResponse = _classes['ServerLiveResponse']
ServerReadyRequest = _classes['ServerReadyRequest']
ServerReadyResponse = _classes['ServerReadyResponse']
ModelReadyRequest = _classes['ModelReadyRequest']
ModelReadyResponse = _classes['ModelReadyResponse']
ServerMetadataRequest = _classes['ServerMetadataRequest']
ServerMetadataResponse = _classes['ServerMetadataResponse']
ModelMetadataRequest = _classes['ModelMetadataRequest']
ModelMetadataResponse = _classes['ModelMetadataResponse']
InferParameter = _classes['InferParameter']
InferTensorContents = _classes['InferTensorContents']
ModelInferRequest = _classes['ModelInferRequest']
ModelInferResponse = _classes['ModelInferResponse']
ModelStreamInferResponse = _classes['ModelStreamInferResponse']
ModelConfigRequest = _classes['ModelConfigRequest']
ModelConfigResponse = _classes['ModelConfigResponse']
ModelInstanceGroup = _classes['ModelInstanceGroup']
ModelInput = _classes['ModelInput']
ModelOutput = _classes['ModelOutput']
ModelQueuePolicy = _classes['ModelQueuePolicy']
ModelDynamicBatching = _classes['ModelDynamicBatching']
ModelParameter = _classes['ModelParameter']
ModelConfig = _classes['ModelConfig']
ModelStatisticsRequest = _classes['ModelStatisticsRequest']
ModelStatisticsResponse = _classes['ModelStatisticsResponse']
StatisticDuration = _classes['StatisticDuration']
InferStatistics = _classes['InferStatistics']
MemoryUsage = _classes['MemoryUsage']
InferBatchStatistics = _classes['InferBatchStatistics']
ModelStatistics = _classes['ModelStatistics']
ModelRepositoryParameter = _classes['ModelRepositoryParameter']
RepositoryIndexRequest = _classes['RepositoryIndexRequest']
RepositoryIndexResponse = _classes['RepositoryIndexResponse']
RepositoryModelLoadRequest = _classes['RepositoryModelLoadRequest']
RepositoryModelLoadResponse = _classes['RepositoryModelLoadResponse']
RepositoryModelUnloadRequest = _classes['RepositoryModelUnloadRequest']
RepositoryModelUnloadResponse = _classes['RepositoryModelUnloadResponse']
SystemSharedMemoryStatusRequest = _classes['SystemSharedMemoryStatusRequest']
SystemSharedMemoryStatusResponse = _classes['SystemSharedMemoryStatusResponse']
SystemSharedMemoryRegisterRequest = _classes['SystemSharedMemoryRegisterRequest']
SystemSharedMemoryRegisterResponse = _classes['SystemSharedMemoryRegisterResponse']
SystemSharedMemoryUnregisterRequest = _classes['SystemSharedMemoryUnregisterRequest']
SystemSharedMemoryUnregisterResponse = _classes['SystemSharedMemoryUnregisterResponse']
CudaSharedMemoryStatusRequest = _classes['CudaSharedMemoryStatusRequest']
CudaSharedMemoryStatusResponse = _classes['CudaSharedMemoryStatusResponse']
CudaSharedMemoryRegisterRequest = _classes['CudaSharedMemoryRegisterRequest']
CudaSharedMemoryRegisterResponse = _classes['CudaSharedMemoryRegisterResponse']
CudaSharedMemoryUnregisterRequest = _classes['CudaSharedMemoryUnregisterRequest']
CudaSharedMemoryUnregisterResponse = _classes['CudaSharedMemoryUnregisterResponse']
TraceSettingRequest = _classes['TraceSettingRequest']
TraceSettingResponse = _classes['TraceSettingResponse']
LogSettingsRequest = _classes['LogSettingsRequest']
LogSettingsResponse = _classes['LogSettingsResponse']
